package consullock

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// waitTime is how long the server lets a blocking query wait for a change.
	waitTime = time.Minute
	// waitTimeout is how long its answer may take: the server adds up to a sixteenth to waitTime.
	waitTimeout = waitTime + 10*time.Second
	// maxWatches is how many keys are watched at once: each takes a connection, and an agent
	// allows 200 from one address.
	maxWatches = 64
	// apiLockHeadStart is how long a lock that a process of ours has freed is left to the clients
	// of api.Lock, if these have used it. One that loses the race for it pauses for five seconds.
	apiLockHeadStart = 4 * time.Millisecond
	// queryInterval is about the least time from one blocking query to the next, and queryRetry the
	// pause after one that failed.
	queryInterval = 2 * time.Millisecond
	queryRetry    = 300 * time.Millisecond
)

var errTooManyWatches = errors.New("too many keys are watched already")

// target is a key that a waiter watches for a change from this index.
type target struct {
	key      string // "" if nothing is watched
	index    uint64
	isLock   bool // it is the lock itself, not an entry of its queue
	heldByUs bool // a process of ours holds the lock
}

// takeWatchSlot takes one of the watch slots, for a watch on key. If it returns nil the caller calls
// freeWatchSlot in the end.
func (b *Backend) takeWatchSlot(key string) error {
	if path, _ := watchedPath(key); path == "" {
		return errors.New("no blocking query can ask for this key")
	}
	select {
	case b.watchSlots <- struct{}{}:
		return nil
	default:
		return errTooManyWatches
	}
}

func (b *Backend) freeWatchSlot() { <-b.watchSlots }

// setTarget watches t instead of the last target, and reports whether it is watched.
func (w *waiter) setTarget(t target) bool {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	return w.setTargetLocked(t)
}

func (w *waiter) setTargetLocked(t target) bool {
	if w.target == t {
		return t.key != ""
	}
	if w.cancel != nil {
		w.cancel()
	}
	w.target, w.freed = target{}, nil
	if path, _ := watchedPath(t.key); path == "" || !w.hasSlot && w.backend.takeWatchSlot(t.key) != nil {
		return false
	}
	ctx, cancel := context.WithCancel(w.backend.life.Context())
	w.hasSlot, w.target, w.cancel = true, t, cancel
	return w.backend.life.Go(func(context.Context) {
		defer cancel()
		w.watch(ctx, t)
	})
}

// Subscribe implements [driver.Notifier]. The attempt before it has begun the watch, from the
// index that it read, so that no change is missed. If nothing is watched, as after the watch has
// fired, Subscribe notifies at once.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	switch {
	case b.invalid != nil:
		return nil, b.invalid
	case a.Mode.Kind != 0:
		return b.kinds.Subscribe(ctx, a)
	case b.life.Closed():
		return nil, driver.ErrClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.hub.Subscribe(engine.PlaceOf(a), nil)
	if w := b.waiters[engine.PlaceOf(a)]; w == nil || w.target.key == "" {
		s.Notify()
	}
	return s, nil
}

// watch calls tell when t has changed.
func (w *waiter) watch(ctx context.Context, t target) {
	queryUntilDone(ctx, t.index, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
		pair, meta, err := w.backend.query(t.key, o)
		changed := err == nil && (pair == nil || pair.ModifyIndex != t.index)
		if changed {
			w.tell(ctx, t, pair)
		}
		return meta, changed, err
	})
}

// tell notifies the subscribers that t has changed to pair, unless the waiter has another target
// by now. If t is the lock, and it is free, the next attempt takes it without reading it first,
// unless clients of api.Lock have used it.
func (w *waiter) tell(ctx context.Context, t target, pair *api.KVPair) {
	v := &view{key: w.place.Key, pair: pair, freed: true}
	if !t.isLock || v.held() {
		v = nil
	} else if pair != nil && t.heldByUs {
		engine.Pause(ctx, apiLockHeadStart)
		v = nil
	}
	w.backend.mu.Lock()
	current := w.target == t
	if current {
		w.target, w.freed = target{}, v
	}
	w.backend.mu.Unlock()
	if current {
		w.backend.hub.Notify(w.place)
	}
}

// query makes one blocking query for the pair at key, nil if there is none.
func (b *Backend) query(key string, o *api.QueryOptions) (at *api.KVPair, meta *api.QueryMeta, err error) {
	path, prefix := watchedPath(key)
	if !prefix {
		return b.client.KV().Get(path, o)
	}
	pairs, meta, err := b.client.KV().List(path, o)
	for _, p := range pairs {
		if p.Key == key {
			at = p
		}
	}
	return at, meta, err
}

// queryUntilDone calls ask, which makes one blocking query, again and again until it reports done
// or ctx ends. The first query waits for a change after index. There is a pause between queries,
// whatever they return.
func queryUntilDone(ctx context.Context, index uint64, ask func(*api.QueryOptions) (meta *api.QueryMeta, done bool, err error)) {
	for pause := time.Duration(0); engine.Pause(ctx, pause); {
		begin := time.Now()
		asking, cancel := context.WithTimeout(ctx, waitTimeout)
		meta, done, err := ask((&api.QueryOptions{WaitIndex: index, WaitTime: waitTime}).WithContext(asking))
		cancel()
		switch {
		case done:
			return
		case err != nil:
			index, pause = 0, queryRetry
			continue
		case meta.LastIndex < index: // begin anew, as Consul's documentation says
			index = 0
		default:
			index = max(meta.LastIndex, 1) // 0 would not block
		}
		pause = queryInterval - time.Since(begin)
	}
}
