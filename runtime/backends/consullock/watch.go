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

// watching is the part of a waiter that watches. The Backend's mutex guards it.
type watching struct {
	target   target
	told     *seen              // the lock, which was told to be free; nil if not
	listened bool               // somebody has subscribed: target is watched
	cancel   context.CancelFunc // of the queries for target; nil if there are none
}

// aim has the waiter watch t from now on.
func (w *waiter) aim(t target) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	w.aimLocked(t)
}

func (w *waiter) aimLocked(t target) {
	if w.target == t {
		return
	}
	w.target, w.told = t, nil
	w.followLocked()
}

// followLocked has the target watched, and nothing else, if somebody listens.
func (w *waiter) followLocked() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	t := w.target
	if !w.listened || t.key == "" {
		return
	}
	ctx, cancel := context.WithCancel(w.backend.life.Context())
	w.cancel = cancel
	w.backend.life.Go(func(context.Context) {
		defer cancel()
		w.watch(ctx, t)
	})
}

// Subscribe implements [driver.Notifier]. The index that the attempt before it has
// seen is what a blocking query begins from, so that no change goes unnoticed. Without
// one there is a notice at once.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if path, _ := watchedPath(a.Key); path == "" {
		return nil, errors.New("no blocking query can ask for this key")
	}
	switch {
	case a.Mode.Kind != 0:
		return b.kinds.Subscribe(ctx, a)
	case b.life.Closed():
		return nil, driver.ErrClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiterLocked(placeOf(a))
	defer w.forgetLocked()
	if !w.listened {
		select {
		case b.watches <- struct{}{}:
		default:
			return nil, errManyWatches
		}
		w.listened = true
		w.followLocked()
	}
	if w.target.key == "" {
		w.aimLocked(target{key: a.Key, lock: true})
	}
	s, _ := b.hub.Subscribe(w.place, func() { b.unsubscribed(w) })
	return s, nil
}

// unsubscribed ends the queries if nobody listens any more.
func (b *Backend) unsubscribed(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.listened && !b.hub.Waits(w.place) {
		w.listened = false
		w.followLocked()
		<-b.watches
		w.forgetLocked()
	}
}

// watch makes blocking queries, one after the other, until t has changed or ctx ends.
func (w *waiter) watch(ctx context.Context, t target) {
	var p pace
	q := newQuery(w.backend.client, t)
	for failed := false; p.wait(ctx, failed); {
		pair, changed, err := q.ask(ctx)
		if failed = err != nil; changed {
			w.tell(ctx, t, pair)
			return
		}
	}
}

// tell tells whoever listens that t has changed, unless the waiter has another target
// since. If it was the lock, and it is free, the next attempt takes it as it is; or it
// looks again, if clients of api.Lock come first.
func (w *waiter) tell(ctx context.Context, t target, pair *api.KVPair) {
	v := &seen{key: w.place.key, pair: pair, told: true}
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

// query asks whether a target has changed. It has the index that the next one waits for.
type query struct {
	client *api.Client
	target target
	path   string
	prefix bool
	index  uint64
}

func newQuery(client *api.Client, t target) *query {
	q := &query{client: client, target: t, index: t.index}
	q.path, q.prefix = watchedPath(t.key)
	return q
}

// ask makes one blocking query, and returns what is at the key.
func (q *query) ask(ctx context.Context) (at *api.KVPair, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitWithin)
	defer cancel()
	options := (&api.QueryOptions{WaitIndex: q.index, WaitTime: waitTime}).WithContext(ctx)
	var pairs api.KVPairs
	var meta *api.QueryMeta
	if q.prefix {
		pairs, meta, err = q.client.KV().List(q.path, options)
	} else {
		at, meta, err = q.client.KV().Get(q.path, options)
	}
	if err != nil {
		return nil, false, err
	}
	for _, p := range pairs {
		if p.Key == q.target.key {
			at = p
		}
	}
	q.index = following(q.index, meta.LastIndex)
	return at, at == nil || at.ModifyIndex != q.target.index, nil
}

// following returns the index to wait for after next was told, as Consul's
// documentation has it: an index that goes back is begun anew.
func following(index, next uint64) uint64 {
	if next < index {
		return 0
	}
	return max(next, 1) // 0 would not block
}

// pace keeps a loop of queries from turning at full speed, whatever comes back.
type pace struct{ last time.Time }

const (
	paceLeast  = 2 * time.Millisecond
	paceFailed = 300 * time.Millisecond
)

// wait returns when the next query may be sent: about paceLeast after the one before was;
// after a failure a while later. It reports whether ctx lives.
func (p *pace) wait(ctx context.Context, failed bool) bool {
	pause := paceLeast - time.Since(p.last)
	if failed {
		pause = paceFailed
	}
	alive := engine.Pause(ctx, pause)
	p.last = time.Now()
	return alive
}
