package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// grain is the unit of the lengths of sessions: the whole seconds of etcd, scaled down.
	grain = 100 * time.Millisecond
	// proofs is how many times in its length a session is kept alive.
	proofs = 16
)

// ticket is the client's side of a session, which all leases of about the same length share.
type ticket struct {
	client *Client
	id     uint64
	ttl    time.Duration
	over   chan struct{} // closed when the server has ended it

	// Guarded by the client's mutex:
	opened bool           // the server has answered once
	proved driver.Instant // the server keeps the session at least until then
	leases []*lease
}

// length returns the length of the session for leases of length ttl. It is longer by the time
// between two proofs.
func length(ttl time.Duration) time.Duration {
	return (ttl + ttl/8 + grain - 1).Truncate(grain)
}

// ticket returns a session that lasts for the whole of a lease that begins now, if the server
// answers soon enough. It returns nil for Row, which has no sessions.
func (c *Client) ticket(ctx context.Context, a *driver.Acquisition) (*ticket, error) {
	if c.server.kind == Row {
		return nil, nil
	}
	t, err := c.ticketOf(length(a.TTL))
	if err != nil || t.left() >= a.TTL {
		return t, err
	}
	switch err := t.prove(ctx); {
	case errors.Is(err, errGone):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: no session: %v", errUnsent, err)
	case a.NoRenewal && t.left() < a.TTL:
		return nil, fmt.Errorf("%w: its session was kept alive too slowly", errUnsent)
	}
	return t, nil
}

// ticketOf returns the session of this length, or a new one if there is none. The first
// proof opens it.
func (c *Client) ticketOf(ttl time.Duration) (*ticket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tickets {
		if t.ttl == ttl {
			return t, nil
		}
	}
	if c.closed {
		return nil, fmt.Errorf("%w: %w", errUnsent, driver.ErrClosed)
	}
	c.sessions++
	t := &ticket{client: c, id: c.number<<32 | c.sessions, ttl: ttl, over: make(chan struct{})}
	c.tickets = append(c.tickets, t)
	c.tasks.Go(t.keepAlive)
	return t, nil
}

// keepAlive proves t alive until it is over.
func (t *ticket) keepAlive() {
	tick := time.NewTicker(t.ttl / proofs)
	defer tick.Stop()
	for {
		select {
		case <-tick.C: // even if earlier proofs have no answer yet
			t.client.spawn(func() { _ = t.prove(t.client.ctx) }) // after an error the next proof follows
		case <-t.over:
			return
		case <-t.client.ctx.Done():
			return
		}
	}
}

// prove asks the server to keep t alive, or to open it. In ZooKeeper it gives up a connection
// on which that takes a third of the session's length.
func (t *ticket) prove(ctx context.Context) error {
	c, timeout := t.client, t.client.timeout
	if c.server.kind == ZooKeeper {
		timeout = min(timeout, t.ttl/3)
	}
	c.mu.Lock()
	opened := t.opened
	c.mu.Unlock()
	sent := driver.Now()
	_, err := ask(ctx, c, c.anySlot(), timeout, func(l *link) (*session, error) {
		if !opened {
			c.server.open(l, t.id, t.ttl)
		}
		return c.server.keep(l, t.id, true)
	})
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.extend(sent)
	}
	return err
}

// extend records that the server has answered a request that was sent at sent. The client's mutex
// must be held.
func (t *ticket) extend(sent driver.Instant) {
	t.opened = true
	if until := sent.Add(t.ttl); until.Left() > t.proved.Left() {
		t.proved = until
	}
}

// left returns how long the server keeps t at least.
func (t *ticket) left() time.Duration {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	return t.proved.Left()
}

// lose ends a session that the server does not have any more, or the lease of an
// acquisition whose node an operator has deleted. It notifies the holders.
func (c *Client) lose(session uint64, id string) {
	c.mu.Lock()
	var lost []*lease
	for _, t := range c.tickets {
		for _, l := range t.leases {
			if t.id == session || l.of.id == id {
				l.lost()
				lost = append(lost, l)
			}
		}
		if t.id == session {
			close(t.over)
		}
	}
	c.tickets = slices.DeleteFunc(c.tickets, func(t *ticket) bool { return t.id == session })
	c.mu.Unlock()
	for _, l := range lost {
		c.spawn(l.tell)
	}
}
