package model

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lease implements [driver.Lease].
type lease struct {
	client     *Client
	of         grant
	n          uint64  // fencing tokens
	unanswered bool    // an attempt of its acquisition may still arrive
	ticket     *ticket // nil in Row

	// Guarded by the client's mutex:
	until driver.Instant // the end by its own ttl
	over  bool           // it has ended for good
	look  func()
	timer *time.Timer // nil in Row
}

// sessionLease is a lease that depends on a session.
type sessionLease struct{ *lease }

// plain returns the lease without the methods that only some engines have.
func plain(l driver.Lease) *lease {
	if s, ok := l.(*sessionLease); ok {
		return s.lease
	}
	return l.(*lease)
}

// newLease returns the lease that the server has granted to a by a request that was sent at sent.
func (c *Client) newLease(a *driver.Acquisition, t *ticket, got taken, sent driver.Instant) *lease {
	l := &lease{client: c, of: grant{key: a.Key, id: a.ID, first: got.first}, n: got.n, unanswered: a.MayHaveRun, ticket: t, until: sent.Add(a.TTL)}
	if t == nil {
		return l
	}
	l.of.session = t.id
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tickets, t) { // the session has ended meanwhile
		l.lost()
		return l
	}
	t.leases = append(t.leases, l)
	l.timer = time.AfterFunc(l.until.Left(), l.runOut)
	return l
}

// Deadline implements [driver.Lease].
func (l *lease) Deadline() driver.Instant {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if l.ticket != nil && l.ticket.proved.Left() < l.until.Left() {
		return l.ticket.proved
	}
	return l.until
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.of.first, l.n }

// grant returns the identity of l at the server, and whether the server may still have it.
func (l *lease) grant() (of grant, held bool) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return l.of, !l.over
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.client.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// renewed handles the server's answer to a renewal that was sent at sent.
func (l *lease) renewed(sent driver.Instant, ttl time.Duration, answer error) error {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer != nil || l.over {
		l.lost()
		l.leave()
		return driver.ErrLost
	}
	if until := sent.Add(ttl); until.Left() > l.until.Left() {
		l.until = until
	}
	if l.ticket != nil {
		l.ticket.extend(sent)
	}
	return nil
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, last uint64) error {
	c := l.client
	_, err := ask(ctx, c, c.anySlot(), c.timeout, func(*link) (struct{}, error) {
		return struct{}{}, c.server.free(l.of, last, l.unanswered)
	})
	if err == nil || errors.Is(err, driver.ErrLost) {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.leave()
	}
	return err
}

// leave removes l from its session's leases. The client's mutex must be held.
func (l *lease) leave() {
	l.over = true
	if l.ticket == nil || l.timer == nil {
		return
	}
	l.timer.Stop()
	l.ticket.leases = slices.DeleteFunc(l.ticket.leases, func(one *lease) bool { return one == l })
}

// lost ends l now, if it has not ended. The client's mutex must be held.
func (l *lease) lost() {
	l.over = true
	if l.until.Left() > 0 {
		l.until = driver.Now()
	}
}

// NotifyLoss implements [driver.LossNotifier].
func (l *sessionLease) NotifyLoss(look func()) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.look = look
}

// tell makes the Locker check l.
func (l *lease) tell() {
	l.client.mu.Lock()
	look := l.look
	l.client.mu.Unlock()
	if look != nil {
		look()
	}
}

// runOut frees a lock whose lease was not renewed, since its session may live on for other leases.
func (l *lease) runOut() {
	c := l.client
	c.mu.Lock()
	if l.over {
		c.mu.Unlock()
		return
	}
	if left := l.until.Left(); left > 0 {
		l.timer.Reset(left)
		c.mu.Unlock()
		return
	}
	l.lost()
	c.mu.Unlock()
	c.spawn(func() {
		l.tell()
		for {
			err := l.Release(c.ctx, 0)
			if err == nil || errors.Is(err, driver.ErrLost) || c.ctx.Err() != nil {
				return
			}
			time.Sleep(freeAgain)
		}
	})
}
