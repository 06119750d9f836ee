package record

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Watch follows the value of a key until ctx ends. It calls tell with each value that it sees, and
// with "" if there is no value or it is not known. It calls ready once, when it will miss no later
// change. It returns before ctx ends only if it fails. tell returns how many fair locks must be
// released before it is the turn of a waiter of this process; the watch may skip that many changes.
type Watch func(ctx context.Context, key string, ready func(), tell func(value string) (ahead int)) error

// keyWatch is one watch, for all waiters of its key in this process.
type keyWatch struct {
	stop  context.CancelFunc
	ready chan struct{}      // closed when the watch is ready, or has failed
	err   error              // why it has failed; set before ready is closed
	hub   engine.Hub[string] // by the IDs of the acquisitions that wait
}

// Subscribe is [driver.Notifier.Subscribe]. A waiter is notified when it is no longer in the queue
// of the value at the key. There is no notice when a lease expires: waiters try once a second. All
// waiters of a key share one watch.
func (l *Locks) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	l.mu.Lock()
	w := l.watches[a.Key]
	if w == nil {
		if w = l.watchLocked(a.Key); w == nil {
			l.mu.Unlock()
			return nil, driver.ErrClosed
		}
	}
	s := w.hub.Subscribe(a.ID, func() { l.unsubscribed(a.Key, w) })
	l.mu.Unlock()
	select {
	case <-w.ready:
		if w.err == nil {
			return s, nil
		}
		s.Close()
		return nil, w.err
	case <-ctx.Done():
		s.Close()
		return nil, ctx.Err()
	}
}

// watchLocked begins to watch key. It returns nil if the Backend is closed.
func (l *Locks) watchLocked(key string) *keyWatch {
	w := &keyWatch{ready: make(chan struct{})}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(l.life.Context())
	if !l.life.Go(func(context.Context) { l.follow(ctx, key, w) }) {
		w.stop()
		return nil
	}
	l.watches[key] = w
	return w
}

// follow watches key until ctx ends, or the first watch fails before it is ready.
func (l *Locks) follow(ctx context.Context, key string, w *keyWatch) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.endWatchLocked(key, w) // the next waiter begins another watch
	}()
	ready := sync.OnceFunc(func() { close(w.ready) })
	tell := func(value string) int { return l.notifyWaiting(w, key, value) }
	err := l.watch(ctx, key, ready, tell)
	select {
	case <-w.ready:
	default:
		w.err = cmp.Or(err, driver.ErrClosed)
		ready()
		return
	}
	for engine.Pause(ctx, 100*time.Millisecond) {
		_ = l.watch(ctx, key, sync.OnceFunc(func() { tell("") }), tell) // it may have missed changes in the gap
	}
}

func (l *Locks) endWatchLocked(key string, w *keyWatch) {
	w.stop()
	if l.watches[key] == w {
		delete(l.watches, key)
	}
}

// notifyGranted notifies the waiters of this process that were let in by a write of this process.
// ids are theirs.
func (l *Locks) notifyGranted(key string, ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watches[key]; w != nil {
		for _, id := range ids {
			w.hub.Notify(id)
		}
	}
}

// notifyWaiting notifies the waiters of w that are no longer in the queue of value. It returns how
// many fair locks are before the first waiter of w.
func (l *Locks) notifyWaiting(w *keyWatch, key, value string) (ahead int) {
	version, s, err := decode(value)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || version == "" {
		w.hub.NotifyAll()
		return 0
	}
	if l.clockless {
		l.resolveBeatsLocked(key, &s, "", l.localTime())
	}
	for ahead < len(s.Queue) && s.Queue[ahead].Kind == kindFair {
		ahead++
	}
	for _, id := range w.hub.Keys() {
		n := find(s.Queue, id)
		ahead = min(ahead, max(n, 0))
		if n < 0 {
			w.hub.Notify(id)
		}
	}
	return ahead
}

// unsubscribed ends the watch if no waiter is left.
func (l *Locks) unsubscribed(key string, w *keyWatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(w.hub.Keys()) == 0 {
		l.endWatchLocked(key, w)
	}
}
