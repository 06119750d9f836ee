package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

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
