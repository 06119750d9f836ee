package etcdlock

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// entryID names what one Locker has to do with one key.
type entryID struct{ locker, key string }

// entry is one Locker's queue entry for one key. The Locker has one goroutine
// compete for a key at a time, so one key of etcd serves them all, in turn: when
// one gives up, the next takes the entry over by writing its own ID over the other's,
// which leaves the create revision as it is. turn keeps two acquisitions that come at
// once all the same from both finding themselves the owner.
//
// Its methods are here and in acquire.go.
type entry struct {
	backend *Backend
	id      entryID
	turn    chan struct{} // holds a value while someone acquires or gives up

	// Guarded by turn.
	session *session    // whose key it is; nil while there is none, as far as we know
	unhook  func() bool // keeps the session's end from calling forgetSession
	owner   string      // the acquisition that wrote it
	created int64       // create revision
	changed int64       // mod revision
	suspect bool        // a request that deletes it at this mod revision had no answer

	// Guarded by the backend's mutex.
	users int // in turn or waiting for it, subscriptions and the key included
	lease *lease
	watch *watch // nil while there is none, and when it has told
}

// prefix is that of the contenders for the key.
func (id entryID) prefix() string { return id.key + "/" }

// keyIn is our key if that is in s.
func (e *entry) keyIn(s *session) string { return e.id.prefix() + s.suffix }

// enter returns the entry that a is about, for the caller alone until it calls leave.
func (b *Backend) enter(ctx context.Context, a *driver.Acquisition) (*entry, error) {
	b.mu.Lock()
	e := b.useLocked(a)
	b.mu.Unlock()
	if !e.enter(ctx) {
		err := e.busy(ctx)
		e.drop()
		return nil, err
	}
	return e, nil
}

// useLocked returns the entry that a is about, which stays until drop was called as often.
func (b *Backend) useLocked(a *driver.Acquisition) *entry {
	id := entryID{engine.Process(a.ID), a.Key}
	e := b.entries[id]
	if e == nil {
		e = &entry{backend: b, id: id, turn: make(chan struct{}, 1)}
		b.entries[id] = e
	}
	e.users++
	return e
}

func (e *entry) drop() {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	e.users--
	e.backend.tidyLocked(e)
}

// tidyLocked drops e from the table if it is about nothing any more.
func (b *Backend) tidyLocked(e *entry) {
	if e.users == 0 && e.lease == nil {
		delete(b.entries, e.id)
		if e.watch != nil {
			e.watch.cancel()
			e.watch = nil
		}
	}
}

// enter waits for e's turn, which the caller then has, or until ctx ends.
func (e *entry) enter(ctx context.Context) bool {
	select {
	case e.turn <- struct{}{}:
		return true
	default:
		goAlone(ctx) // what is sent together does not wait for a turn
	}
	select {
	case e.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// leave ends the caller's turn.
func (e *entry) leave() {
	<-e.turn
	e.drop()
}

// busy is the answer to who did not get e's turn before ctx ended. What has the turn is
// mostly an undo, which lasts as long as etcd does not answer: that alone does not say
// that anyone holds the key.
func (e *entry) busy(ctx context.Context) error {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.lease != nil || e.watch != nil || b.hub.Waits(e.id) {
		return &driver.HeldError{} // as it was when we last looked
	}
	return fmt.Errorf("waiting for what is under way about the key: %w", ctx.Err())
}

// forgetSession forgets that our key is in s, which has ended: whoever waited may have gone for
// good, its undo in vain. Else it is told.
func (e *entry) forgetSession(s *session) {
	if e.enter(e.backend.life.Context()) {
		if e.session == s {
			e.lost()
			e.backend.hub.Notify(e.id)
		}
		<-e.turn
	}
}

// holder returns the lease that has not been released yet, or nil.
func (e *entry) holder() *lease {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return e.lease
}

// known says whether we have a key at the server, as far as we know, that is not
// held.
func (e *entry) known() bool { return e.session != nil }

// serves says whether the key that we have is given up with a: its own, or with a.Queue
// what an earlier one left. A later one that waits there is not a's concern.
func (e *entry) serves(a *driver.Acquisition) bool {
	return e.known() && (e.owner == a.ID || a.Queue && !a.BegunBefore(e.owner))
}

// note takes down what the server has at our key.
func (e *entry) note(s *session, kv *mvccpb.KeyValue) {
	if !e.known() {
		s.Use()
		e.backend.mu.Lock()
		e.users++
		e.backend.mu.Unlock()
		e.unhook = context.AfterFunc(s.Context(), func() { e.forgetSession(s) })
	}
	e.session, e.owner, e.created, e.changed, e.suspect = s, string(kv.Value), kv.CreateRevision, kv.ModRevision, false
}

// lost takes down that there is no key of ours, or that a lease stands for it.
func (e *entry) lost() {
	if !e.known() {
		return
	}
	e.unhook()
	e.session.Drop()
	e.session = nil
	e.follow(nil)
	e.drop()
}

// giveUp deletes our key, unless it has changed.
func (e *entry) giveUp(ctx context.Context) error {
	if e.session.Alive() {
		mine := e.keyIn(e.session)
		_, r, err := e.backend.free(ctx, nil, ifModified(mine, e.changed), del(mine))
		if err != nil {
			e.suspect = e.suspect || r.mayHaveRun
			return err
		}
	}
	e.lost()
	return nil
}
