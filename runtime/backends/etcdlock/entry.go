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
// which leaves the create revision as it is. The key's turn, of Backend.turns, keeps two
// acquisitions that come at once all the same from both finding themselves the owner.
//
// Its methods are here and in acquire.go.
type entry struct {
	backend *Backend
	id      engine.Place

	// For who has the turn.
	endTurn func()
	session *session // whose key it is; nil while there is none, as far as we know
	owner   string   // the acquisition that wrote it
	created int64    // create revision; 0 while there is none
	changed int64    // mod revision; likewise
	suspect bool     // a request that deletes it at this mod revision had no answer

	watch *watch // nil while there is none, and when it has told; the backend's mutex guards it
}

// prefix is that of the contenders for the key.
func (e *entry) prefix() string { return e.id.Key + "/" }

// keyIn is our key if that is in s.
func (e *entry) keyIn(s *session) string { return e.prefix() + s.suffix }

// enter returns the entry that a is about, for the caller alone until it calls leave. What
// has the turn meanwhile is mostly an undo, which lasts as long as etcd does not answer.
func (b *Backend) enter(ctx context.Context, a *driver.Acquisition) (*entry, error) {
	id := engine.PlaceOf(a)
	endTurn, err := b.turns.Enter(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("waiting for what is under way about the key: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil {
		e = &entry{backend: b, id: id}
		b.entries[id] = e
	}
	e.endTurn = endTurn
	return e, nil
}

// leave ends the caller's turn.
func (e *entry) leave() {
	b := e.backend
	b.mu.Lock()
	if !e.known() { // it is about nothing any more
		delete(b.entries, e.id)
	}
	b.mu.Unlock()
	e.endTurn()
}

// holder returns the lease that has not been released yet, or nil.
func (e *entry) holder() *lease {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	return e.backend.held[e.id]
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
func (e *entry) note(s *session, owner string, created, changed int64) {
	if !e.known() {
		s.Use()
	}
	e.session, e.owner, e.created, e.changed, e.suspect = s, owner, created, changed, false
}

// lost takes down that there is no key of ours, or that a lease stands for it.
func (e *entry) lost() {
	if !e.known() {
		return
	}
	e.session.Drop()
	e.session, e.created, e.changed = nil, 0, 0
	e.follow(nil)
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

// watch watches the contender before a queue entry.
type watch struct {
	session *session // whose end is told too
	key     string
	from    int64 // the revision to begin with, so that nothing is missed
	cancel  context.CancelFunc
}

// follow has e's subscriptions told when w sees its key deleted, when it fails, and when
// its session ends. It replaces the watch before, unless that is the same; a nil w only
// ends it.
func (e *entry) follow(w *watch) {
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
		b.await(ctx, w)
		b.mu.Lock()
		defer b.mu.Unlock()
		if e.watch == w {
			e.watch = nil
			b.hub.Notify(e.id)
		}
	})
}

// await returns when w's key was deleted, when the watch has failed, or ctx has ended.
func (b *Backend) await(ctx context.Context, w *watch) {
	for resp := range b.watcher.Watch(clientv3.WithRequireLeader(ctx), w.key, clientv3.WithFilterPut(), clientv3.WithRev(w.from)) {
		if len(resp.Events) > 0 {
			return
		}
	}
	// It has failed: compacted, or the member has no leader. The waiter asks
	// then, and watches again; not at full speed.
	engine.Pause(ctx, 100*time.Millisecond)
}

// Subscribe implements [driver.Notifier]. Behind an attempt that found the key held
// there is a watch of the one contender before ours, from the revision that the attempt
// saw: what happened since is told too. Without one there is a notice at once.
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
