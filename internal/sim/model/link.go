package model

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// Errors of a request that are found by the client.
var (
	errUnsent = errors.New("the request was not sent") // it has no effect
	errSilent = errors.New("no answer")                // it may have had an effect, or may still have one
)

// link is one connection of a client, with both ends.
type link struct {
	client *Client
	number uint64 // counts the connections of the client
	slot   int

	ready chan struct{} // closed when it is connected, or can't be
	err   error         // of connecting; this and the fields below are valid after ready
	flow  *vnet.Flow
	near  *vnet.End
	far   *vnet.End

	over   chan struct{} // closed when the client has given up the connection
	giving sync.Once

	watches map[string]bool // keys whose changes are notified; guarded by the server's mutex
}

// push sends a message from the server to the client. Later answers arrive after it.
func (l *link) push(tell func()) { l.flow.Send(vnet.Replies, tell) }

// request sends run to the server, which executes it unless it is lost.
func (l *link) request(run func()) {
	l.flow.Send(vnet.Requests, func() { l.client.server.handle(l, run) })
}

// isUp reports whether l is not nil and was connected.
func (l *link) isUp() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.ready:
		return l.err == nil
	default:
		return false
	}
}

// giveUp ends l at the client's side. Requests that were sent on it may still arrive.
func (l *link) giveUp() {
	l.giving.Do(func() {
		l.client.forget(l) // before l.over is closed, so that a caller that is woken makes a new link
		close(l.over)
		_ = l.near.Close()
	})
}

// slots returns the number of connections of a client. Requests on one connection are executed
// in order, requests on different ones in any order. A session of ZooKeeper has one connection; a
// client of the other engines may have a pool. Notifications come on the first.
func (k Kind) slots() int {
	if k == ZooKeeper {
		return 1
	}
	return 2
}

// anySlot returns the next slot in turn.
func (c *Client) anySlot() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	return c.turn % len(c.slots)
}

// connected returns the link of a slot. It makes one if there is none.
func (c *Client) connected(ctx context.Context, slot int) (*link, error) {
	c.mu.Lock()
	l := c.slots[slot]
	switch {
	case l != nil:
	case c.closed:
		c.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", errUnsent, driver.ErrClosed)
	default:
		c.links++
		l = &link{client: c, number: c.links, slot: slot, ready: make(chan struct{}), over: make(chan struct{}), watches: map[string]bool{}}
		c.slots[slot] = l
		c.tasks.Go(l.live)
	}
	c.mu.Unlock()
	select {
	case <-l.ready:
		return l, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errUnsent, ctx.Err())
	}
}

// live connects l and returns when it has ended.
func (l *link) live() {
	c := l.client
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	conn, err := c.path.Dial(ctx, func(far *vnet.End, flow *vnet.Flow) bool {
		l.far, l.flow = far, flow
		return c.server.accept(l)
	})
	if err != nil {
		l.err = fmt.Errorf("%w: %w", errUnsent, err)
		c.forget(l)
		close(l.ready)
		return
	}
	l.near = conn.(*vnet.End)
	c.attach(l)
	close(l.ready)
	select {
	case <-l.near.Failed():
	case <-l.over:
	case <-c.ctx.Done():
	}
	l.giveUp()
}

// forget removes l from its slot.
func (c *Client) forget(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[l.slot] == l {
		c.slots[l.slot] = nil
	}
}

// attach sends the first request of l, with the client's subscriptions and sessions. The client
// missed the notifications since the previous connection, so each key gets a notice.
func (c *Client) attach(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	var sessions []uint64
	for _, s := range c.subscriptions {
		if l.slot == 0 {
			keys = append(keys, s.key)
		}
	}
	for _, t := range c.tickets {
		if t.opened {
			sessions = append(sessions, t.id)
		}
	}
	l.request(func() {
		for _, id := range sessions {
			_, _ = c.server.keep(l, id, false) // notifies the client if the session has ended
		}
		for _, key := range keys {
			l.watches[key] = true
			l.push(func() { c.notice(key) })
		}
	})
}

// answer is an answer of the server.
type answer[T any] struct {
	value T
	err   error
}

// ask executes run at the server and returns its answer. If there is no answer within
// timeout, it gives up the connection. Its own errors are errUnsent and errSilent.
func ask[T any](ctx context.Context, c *Client, slot int, timeout time.Duration, run func(*link) (T, error)) (T, error) {
	var none T
	l, err := c.connected(ctx, slot)
	if err != nil {
		return none, err
	}
	answers := make(chan answer[T], 1)
	l.request(func() {
		value, err := run(l)
		l.push(func() { answers <- answer[T]{value, err} })
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", errSilent, ctx.Err())
	case <-timer.C:
		l.giveUp()
		return none, fmt.Errorf("%w within %v", errSilent, timeout)
	case <-l.over:
		return none, fmt.Errorf("%w: the connection was cut", errSilent)
	}
}
