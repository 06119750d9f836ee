package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// entry is what one Locker has to do with one key, but for its leases. The Locker has one
// goroutine compete for a key at a time, so one node in the key's queue serves them all,
// in turn: when one gives up, the next takes the node over.
type entry struct {
	backend *Backend
	key     engine.Place

	// For who has the turn of the key, of Backend.turns.
	node  *node  // the one that competes or waits, or nil
	owner string // the acquisition that competes or waits by it
	told  string // the last acquisition that was told to wait
}

// errGone says that the node is there no more, or its session.
var errGone = errors.New("the node of this acquisition is gone")

// tries bounds how often an acquire begins anew because a request had no answer, or its
// node or the directory has vanished.
const tries = 16

// enter returns the entry of a key, for the caller alone until it calls leave.
func (b *Backend) enter(ctx context.Context, key engine.Place) (e *entry, leave func(), err error) {
	end, err := b.turns.Enter(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w, something else about the key is under way: %w", client.ErrNotSent, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e = b.entries[key]; e == nil {
		e = &entry{backend: b, key: key}
		b.entries[key] = e
	}
	return e, func() {
		b.mu.Lock()
		if e.node == nil && e.told == "" { // it is about nothing
			delete(b.entries, key)
		}
		b.mu.Unlock()
		end()
	}, nil
}

// acquire makes one attempt. A node whose creation had no answer is looked for. One that is
// gone, as one is whose session has expired, or that somebody has deleted, is made anew.
func (e *entry) acquire(ctx context.Context, a *driver.Acquisition, dir string) (driver.Lease, error) {
	if l := e.backend.leaseOf(a); l != nil { // the same acquisition, once more
		if l.Deadline().Left() > 0 {
			return l, l.Renew(ctx, a.TTL)
		}
		if err := l.free(ctx); err != nil { // the next node has its name
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
		// A connection or a session may end after it was found, and before the request is sent.
		ended := errors.Is(err, client.ErrNotSent) && !errors.Is(err, errAway)
		again := unanswered(err) || errors.Is(err, errGone) || ended
		if !again || try == tries || ctx.Err() != nil {
			return nil, e.settle(ctx, a, err)
		}
	}
}

// attempt sees to it that the Locker has a node in the queue, and reports whether that is
// the first.
func (e *entry) attempt(ctx context.Context, a *driver.Acquisition, dir string) (first bool, err error) {
	s, err := e.backend.session(ctx, a.TTL)
	if err != nil {
		return false, err
	}
	defer s.Drop()
	if n := e.node; n != nil && !(n.session.Alive() && n.session.span.suits(a.TTL)) {
		if err := e.giveUp(ctx); err != nil {
			return false, err
		}
	}
	if a.Queue {
		e.owner = a.ID
	}
	var listed <-chan client.Answer // who is in the directory, if that was asked
	switch n := e.node; {
	case n == nil:
		s.Use()
		e.owner, e.node = a.ID, &node{session: s, dir: dir, prefix: protection(a.ID), notify: func() { e.backend.hub.Notify(e.key) }}
		if listed, err = e.node.create(ctx, a.ID); err != nil && !unanswered(err) {
			e.forgetNode() // there is none of what was refused, or not sent
		}
	case n.path == "":
		if err = n.find(ctx); err == nil && n.path == "" {
			err = errGone
		}
	}
	if err == nil {
		first, err = e.node.isFirst(ctx, listed, a.Queue)
	}
	if n := e.node; n != nil && (errors.Is(err, errGone) || !n.session.Alive()) {
		e.forgetNode()
		return false, errGone
	}
	return first, err
}

// grant makes the lease for a, whose node is the first.
func (e *entry) grant(ctx context.Context, a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	n := e.node
	_, err := firstToken(n.czxid)
	if err == nil && a.NoRenewal { // it has its whole length, whatever was proved last
		err = n.session.Await(ctx, a.TTL)
		sent = driver.Now()
	}
	switch {
	case !n.session.Alive(): // a lease on it would be over
		return nil, errGone
	case err != nil:
		return nil, err
	}
	n.session.client.Unwatch(n.before)
	e.node, e.owner, e.told = nil, "", ""
	l := &lease{node: n}
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	l.Lease = n.session.NewLease(a, uint64(n.czxid), sent.Add(a.TTL), l.forget)
	n.lease.Store(l)
	e.backend.leases[a.ID] = l
	return l, nil
}

// settle returns what an Acquire of a that ended with err returns, nil being that another
// holds the key. A node that waits stays in the queue meanwhile.
func (e *entry) settle(ctx context.Context, a *driver.Acquisition, err error) error {
	held := err == nil
	if e.told == a.ID && !held {
		// It goes on waiting while the servers are away, or have ended the session.
		held = unanswered(err) || errors.Is(err, client.ErrNotSent) || errors.Is(err, errGone) || errors.Is(err, client.ErrExpired)
	}
	if a.Queue {
		e.told = ""
		if held {
			e.told = a.ID
		}
	}
	if e.node != nil && e.owner == a.ID && (held && !a.Queue || final(err)) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = e.giveUp(ctx)
	}
	left := e.node != nil && e.owner == a.ID
	a.MayHaveRun = a.MayHaveRun || left && !(held && a.Queue) // so that Undo is called
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

// giveUp deletes the node, which was made for one that does not wait any more.
func (e *entry) giveUp(ctx context.Context) error {
	if _, err := e.node.remove(ctx); err != nil {
		return err
	}
	e.forgetNode()
	return nil
}

// forgetNode notes that the node is not there, nor will be.
func (e *entry) forgetNode() {
	e.node.forget()
	e.node, e.owner = nil, ""
}

// undo is Undo of a mutex. It gives up the node that is a's, or with a.Queue what an
// earlier acquisition of the Locker left. A later one that waits there is not a's concern,
// nor is a lease that one has by a's node.
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
	if a.Queue && !a.BegunBefore(e.told) {
		e.told = ""
	}
	if e.node == nil || e.owner != a.ID && !(a.Queue && !a.BegunBefore(e.owner)) {
		return nil
	}
	return e.giveUp(ctx)
}

// leaseOf returns the lease of a, whose node may still be there, or nil.
func (b *Backend) leaseOf(a *driver.Acquisition) *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.leases[a.ID]; l != nil && l.Acquisition.Key == a.Key {
		return l
	}
	return nil
}
