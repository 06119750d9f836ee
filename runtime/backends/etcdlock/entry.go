package etcdlock

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// entry is one Locker's queue entry for one key. The Locker has one goroutine
// compete for a key at a time, so one key of etcd serves them all, in turn: when
// one gives up, the next takes the entry over by writing its own ID over the other's,
// which leaves the create revision as it is. Backend.turns lets one goroutine at a time
// use an entry: else two acquisitions could both find that their key owns the lock.
//
// Its methods are here and in acquire.go.
type entry struct {
	backend *Backend
	place   engine.Place

	// Only the goroutine that has the turn uses these.
	endTurn      func()
	session      *session // the session of our key; nil while we know of no key
	owner        string   // the ID in it: the acquisition that wrote it last
	created      int64    // create revision; 0 while there is none
	modified     int64    // mod revision; likewise
	maybeDeleted bool     // a request to delete it at this mod revision had no answer

	watch *watch // nil if there is none, or it has fired; Backend.mu guards it
}

// prefix is the prefix of all contenders' keys.
func (e *entry) prefix() string { return e.place.Key + "/" }

// keyIn returns the name of our key in session s.
func (e *entry) keyIn(s *session) string { return e.prefix() + s.suffix }

// enter returns the entry of a's key, for the caller alone until it calls leave. It waits for
// whoever has the turn: mostly an undo, which lasts as long as etcd does not answer.
func (b *Backend) enter(ctx context.Context, a *driver.Acquisition) (*entry, error) {
	place := engine.PlaceOf(a)
	endTurn, err := b.turns.Enter(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("waiting for what is under way about the key: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[place]
	if e == nil {
		e = &entry{backend: b, place: place}
		b.entries[place] = e
	}
	e.endTurn = endTurn
	return e, nil
}

// leave ends the caller's turn.
func (e *entry) leave() {
	b := e.backend
	b.mu.Lock()
	if !e.hasKey() {
		delete(b.entries, e.place)
	}
	b.mu.Unlock()
	e.endTurn()
}

// holder returns the lease that has not been released yet, or nil.
func (e *entry) holder() *lease {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return e.backend.held[e.place]
}

// hasKey reports whether we know of a key of ours at the server that no lease holds.
func (e *entry) hasKey() bool { return e.session != nil }

// undoneBy reports whether an undo of a deletes our key: if a wrote it or, with a.Queue, if an
// earlier acquisition did. The key of a later one, which waits, stays.
func (e *entry) undoneBy(a *driver.Acquisition) bool {
	return e.hasKey() && (e.owner == a.ID || a.Queue && !a.BegunBefore(e.owner))
}

// setKey notes what the server has at our key in s.
func (e *entry) setKey(s *session, owner string, created, modified int64) {
	if !e.hasKey() {
		s.Use()
	}
	e.session, e.owner, e.created, e.modified, e.maybeDeleted = s, owner, created, modified, false
}

// forgetKey notes that we have no key at the server, or that a lease has it now.
func (e *entry) forgetKey() {
	if !e.hasKey() {
		return
	}
	e.session.Drop()
	e.session, e.created, e.modified = nil, 0, 0
	e.setWatch(nil)
}

// giveUp deletes our key, unless it has changed.
func (e *entry) giveUp(ctx context.Context) error {
	if e.session.Alive() {
		mine := e.keyIn(e.session)
		_, r, err := e.backend.free(ctx, nil, ifModified(mine, e.modified), del(mine))
		if err != nil {
			e.maybeDeleted = e.maybeDeleted || r.mayHaveRun
			return err
		}
	}
	e.forgetKey()
	return nil
}

// watch waits for the deletion of the predecessor of a queue entry.
type watch struct {
	session *session // its end counts as a deletion
	key     string
	from    int64 // the revision to begin with, so that no deletion is missed
	cancel  context.CancelFunc
}

// setWatch replaces e's watch by w, unless both are of the same key; a nil w only ends the old
// one. When w's key is deleted, the watch fails, or its session ends, it notifies the
// subscriptions of e's place.
func (e *entry) setWatch(w *watch) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := e.watch; old != nil {
		if w != nil && old.session == w.session && old.key == w.key {
			return
		}
		old.cancel()
	}
	e.watch = w
	if w == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.session.Context())
	w.cancel = cancel
	b.life.Go(func(context.Context) {
		defer cancel()
		b.awaitDeletion(ctx, w)
		b.mu.Lock()
		defer b.mu.Unlock()
		if e.watch == w {
			e.watch = nil
			b.hub.Notify(e.place)
		}
	})
}

// awaitDeletion returns when w's key was deleted, the watch has failed, or ctx has ended.
func (b *Backend) awaitDeletion(ctx context.Context, w *watch) {
	for resp := range b.watcher.Watch(clientv3.WithRequireLeader(ctx), w.key, clientv3.WithFilterPut(), clientv3.WithRev(w.from)) {
		if len(resp.Events) > 0 {
			return
		}
	}
	// The revision is compacted, or the member has no leader. The waiter tries again, and
	// watches again; the pause bounds how often.
	engine.Pause(ctx, 100*time.Millisecond)
}

// Subscribe implements [driver.Notifier]. An attempt that found the key held has set a
// watch on the contender before ours, from the revision that it read, so that no deletion is
// missed. Without a watch Subscribe notifies at once.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if err := b.check(a.Key); err != nil {
		return nil, err
	}
	switch {
	case b.life.Closed():
		return nil, driver.ErrClosed
	case a.Mode.Kind != 0:
		return b.kinds.Subscribe(ctx, a)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sub := b.hub.Subscribe(engine.PlaceOf(a), nil)
	if e := b.entries[engine.PlaceOf(a)]; e == nil || e.watch == nil {
		sub.Notify()
	}
	return sub, nil
}
