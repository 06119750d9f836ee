package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// entry is one Locker's queue entry for one key. The Locker has one goroutine compete for a
// key at a time, so one node in the key's queue serves them all, in turn: when one gives up,
// the next takes the node over.
type entry struct {
	backend *Backend
	place   engine.Place

	// Only the goroutine that has the turn, of Backend.turns, uses these.
	node    *node  // our node in the queue; nil if there is none
	owner   string // the ID of the acquisition that competes by it
	waiting string // the ID of the last acquisition that was told to wait
}

// errNodeGone says that the node was deleted, or its session has ended.
var errNodeGone = errors.New("the node of this acquisition is gone")

// maxAttempts bounds how often an acquire begins anew because a request had no answer, or its
// node or directory was deleted.
const maxAttempts = 16

// enter returns the entry of a key, for the caller alone until it calls leave.
func (b *Backend) enter(ctx context.Context, key engine.Place) (e *entry, leave func(), err error) {
	end, err := b.turns.Enter(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w, something else about the key is under way: %w", client.ErrNotSent, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e = b.entries[key]; e == nil {
		e = &entry{backend: b, place: key}
		b.entries[key] = e
	}
	return e, func() {
		b.mu.Lock()
		if e.node == nil && e.waiting == "" {
			delete(b.entries, key)
		}
		b.mu.Unlock()
		end()
	}, nil
}

// acquire tries to take the lock. It looks for a node whose creation had no answer, and creates
// another if the node was deleted or its session has expired.
func (e *entry) acquire(ctx context.Context, a *driver.Acquisition, dir string) (driver.Lease, error) {
	if l := e.backend.leaseOf(a); l != nil { // the same acquisition, once more
		if l.Deadline().Left() > 0 {
			return l, l.Renew(ctx, a.TTL)
		}
		if err := l.free(ctx); err != nil { // else the next node would have the same prefix
			return nil, err
		}
	}
	for try := 1; ; try++ {
		sent := driver.Now() // a first acquire connects before it sends anything
		first, err := e.attempt(ctx, a, dir)
		if err == nil && first {
			var l *lease
			if l, err = e.grant(ctx, a, sent); err == nil {
				return l, nil
			}
		}
		// A connection or a session may end just before the request is sent.
		ended := errors.Is(err, client.ErrNotSent) && !errors.Is(err, errNoConnection)
		again := unanswered(err) || errors.Is(err, errNodeGone) || ended
		if !again || try == maxAttempts || ctx.Err() != nil {
			return nil, e.result(ctx, a, err)
		}
	}
}

// attempt creates a node in the queue if the Locker has none, and reports whether it is the first.
func (e *entry) attempt(ctx context.Context, a *driver.Acquisition, dir string) (first bool, err error) {
	s, err := e.backend.session(ctx, a.TTL)
	if err != nil {
		return false, err
	}
	defer s.Drop()
	if n := e.node; n != nil && !(n.session.Alive() && n.session.class.suits(a.TTL)) {
		if err := e.giveUp(ctx); err != nil {
			return false, err
		}
	}
	if a.Queue {
		e.owner = a.ID
	}
	var listed <-chan client.Answer // the directory's children, if they were asked for
	switch n := e.node; {
	case n == nil:
		s.Use()
		e.owner, e.node = a.ID, &node{session: s, dir: dir, prefix: protectedPrefix(a.ID), notify: func() { e.backend.hub.Notify(e.place) }}
		if listed, err = e.node.create(ctx, a.ID); err != nil && !unanswered(err) {
			e.forgetNode() // the creation was refused, or not sent
		}
	case n.path == "":
		if err = n.find(ctx); err == nil && n.path == "" {
			err = errNodeGone
		}
	}
	if err == nil {
		first, err = e.node.isFirst(ctx, listed, a.Queue)
	}
	if n := e.node; n != nil && (errors.Is(err, errNodeGone) || !n.session.Alive()) {
		e.forgetNode()
		return false, errNodeGone
	}
	return first, err
}

// grant makes the lease for a, whose node is the first.
func (e *entry) grant(ctx context.Context, a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	n := e.node
	_, err := firstToken(n.czxid)
	if err == nil && a.NoRenewal { // the lease needs its whole length ahead
		err = n.session.Await(ctx, a.TTL)
		sent = driver.Now()
	}
	switch {
	case !n.session.Alive(): // a lease on it would be over
		return nil, errNodeGone
	case err != nil:
		return nil, err
	}
	n.session.client.Unwatch(n.predecessorWatch)
	e.node, e.owner, e.waiting = nil, "", ""
	l := &lease{node: n}
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	l.Lease = n.session.NewLease(a, uint64(n.czxid), sent.Add(a.TTL), l.forget)
	n.lease.Store(l)
	e.backend.leases[a.ID] = l
	return l, nil
}

// result returns the error of an Acquire of a that got no lock: err says why, nil that another
// holds the key. The node of an acquisition that waits stays in the queue.
func (e *entry) result(ctx context.Context, a *driver.Acquisition, err error) error {
	held := err == nil
	if e.waiting == a.ID && !held {
		// It goes on waiting while the servers are out of reach, or have ended the session.
		held = unanswered(err) || errors.Is(err, client.ErrNotSent) || errors.Is(err, errNodeGone) || errors.Is(err, client.ErrExpired)
	}
	if a.Queue {
		e.waiting = ""
		if held {
			e.waiting = a.ID
		}
	}
	if e.node != nil && e.owner == a.ID && (held && !a.Queue || final(err)) {
		ctx, cancel := context.WithTimeout(ctx, reconnectWait)
		defer cancel()
		_ = e.giveUp(ctx)
	}
	left := e.node != nil && e.owner == a.ID
	a.MayHaveRun = a.MayHaveRun || left && !(held && a.Queue) // the Locker calls Undo
	switch {
	case held && err != nil:
		return fmt.Errorf("%w, as far as is known, %w: %w", &driver.HeldError{}, driver.ErrUnavailable, err)
	case held:
		return &driver.HeldError{}
	case left && e.node.path == "" && !unanswered(err):
		return fmt.Errorf("%w: %w", client.ErrNoAnswer, err)
	}
	return err
}

// giveUp deletes the node. Nobody competes by it any more.
func (e *entry) giveUp(ctx context.Context) error {
	if _, err := e.node.remove(ctx); err != nil {
		return err
	}
	e.forgetNode()
	return nil
}

// forgetNode notes that the node does not exist, nor will.
func (e *entry) forgetNode() {
	e.node.forget()
	e.node, e.owner = nil, ""
}

// undo is Undo of a mutex. It deletes the node if a competes by it or, with a.Queue, an earlier
// acquisition of the Locker. The node of a later one, which waits, stays, and so does the lease
// of another by a's node.
func (b *Backend) undo(ctx context.Context, a *driver.Acquisition) error {
	if l := b.leaseOf(a); l != nil {
		l.End()
		return l.free(ctx)
	}
	e, leave, err := b.enter(ctx, engine.PlaceOf(a))
	if err != nil {
		return err
	}
	defer leave()
	if a.Queue && !a.BegunBefore(e.waiting) {
		e.waiting = ""
	}
	if e.node == nil || e.owner != a.ID && !(a.Queue && !a.BegunBefore(e.owner)) {
		return nil
	}
	return e.giveUp(ctx)
}

// leaseOf returns the lease of a whose node may still exist, or nil.
func (b *Backend) leaseOf(a *driver.Acquisition) *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.leases[a.ID]; l != nil && l.Acquisition.Key == a.Key {
		return l
	}
	return nil
}
