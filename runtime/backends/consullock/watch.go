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
	// waitTime is how long a blocking query waits for a change.
	waitTime = time.Minute
	// waitWithin is how long its answer may take: the server adds up to a sixteenth.
	waitWithin = waitTime + 10*time.Second
	// manyWatches is how many keys are watched at once: each takes a connection,
	// and an agent allows 200 of one address.
	manyWatches = 64
	// precedence is for how long a lock that a process of ours has freed is left to
	// the clients of api.Lock, where these have used it. One of them that tries just
	// before we free it again pauses for five seconds.
	precedence = 4 * time.Millisecond
	// paceLeast is the least time from one blocking query to the next, about, and paceFailed
	// the pause after one that failed.
	paceLeast  = 2 * time.Millisecond
	paceFailed = 300 * time.Millisecond
)

var errManyWatches = errors.New("too many keys are watched already")

// target is a key that is there, and the index that it has. A change of it is what
// a waiter waits for.
type target struct {
	key   string // "": nothing
	index uint64
	lock  bool // it is the lock itself, to be taken when it is free
	ours  bool // which a process of ours holds
}

// beginWatch makes room for a watch on key. Whoever calls it calls endWatch if it returns nil.
func (b *Backend) beginWatch(key string) error {
	if path, _ := watchedPath(key); path == "" {
		return errors.New("no blocking query can ask for this key")
	}
	select {
	case b.watches <- struct{}{}:
		return nil
	default:
		return errManyWatches
	}
}

func (b *Backend) endWatch() { <-b.watches }

// aim has t watched from now on, and nothing else. It reports whether it is.
func (w *waiter) aim(t target) bool {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	return w.aimLocked(t)
}

func (w *waiter) aimLocked(t target) bool {
	if w.target == t {
		return t.key != ""
	}
	if w.cancel != nil {
		w.cancel()
	}
	w.target, w.told = target{}, nil
	if path, _ := watchedPath(t.key); path == "" || !w.room && w.backend.beginWatch(t.key) != nil {
		return false
	}
	ctx, cancel := context.WithCancel(w.backend.life.Context())
	w.room, w.target, w.cancel = true, t, cancel
	return w.backend.life.Go(func(context.Context) {
		defer cancel()
		w.watch(ctx, t)
	})
}

// Subscribe implements [driver.Notifier]. The attempt before it has begun the watch, from the
// index that it has seen, so that no change goes unnoticed. Where nothing is watched, as the
// change has been told already, there is a notice at once.
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

// watch tells when t has changed.
func (w *waiter) watch(ctx context.Context, t target) {
	follow(ctx, t.index, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
		pair, meta, err := w.backend.query(t.key, o)
		changed := err == nil && (pair == nil || pair.ModifyIndex != t.index)
		if changed {
			w.tell(ctx, t, pair)
		}
		return meta, changed, err
	})
}

// tell tells whoever listens that t has changed, unless the waiter has another target
// since. If it was the lock, and it is free, the next attempt takes it as it is; or it
// looks again, if clients of api.Lock come first.
func (w *waiter) tell(ctx context.Context, t target, pair *api.KVPair) {
	v := &seen{key: w.place.Key, pair: pair, told: true}
	if !t.lock || v.held() {
		v = nil
	} else if pair != nil && t.ours {
		engine.Pause(ctx, precedence)
		v = nil
	}
	w.backend.mu.Lock()
	current := w.target == t
	if current {
		w.target, w.told = target{}, v
	}
	w.backend.mu.Unlock()
	if current {
		w.backend.hub.Notify(w.place)
	}
}

// query makes one blocking query for what is at key, nil if there is nothing.
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

// follow has ask make blocking queries, one after the other, the first for what comes after
// index, until it says that it is done, or ctx ends. They do not follow each other at full
// speed, whatever comes back.
func follow(ctx context.Context, index uint64, ask func(*api.QueryOptions) (meta *api.QueryMeta, done bool, err error)) {
	for pause := time.Duration(0); engine.Pause(ctx, pause); {
		begin := time.Now()
		asking, cancel := context.WithTimeout(ctx, waitWithin)
		meta, done, err := ask((&api.QueryOptions{WaitIndex: index, WaitTime: waitTime}).WithContext(asking))
		cancel()
		switch {
		case done:
			return
		case err != nil:
			index, pause = 0, paceFailed
			continue
		case meta.LastIndex < index: // it is begun anew, as Consul's documentation has it
			index = 0
		default:
			index = max(meta.LastIndex, 1) // 0 would not block
		}
		pause = paceLeast - time.Since(begin)
	}
}
