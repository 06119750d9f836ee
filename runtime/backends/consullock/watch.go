package consullock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// waitTime is how long a blocking query waits for a change.
	waitTime = time.Minute
	// waitWithin is how long its answer may take: the server adds up to a sixteenth.
	waitWithin = waitTime + 10*time.Second
	// manyWatches is how many keys are watched at once: each takes a connection,
	// and an agent allows 200 of one address.
	manyWatches = 64
)

var errManyWatches = errors.New("too many keys are watched already")

// watch is one blocking query, again and again, for one key that local waiters
// wait for.
type watch struct {
	backend *Backend
	key     string
	waiters map[*subscription]bool // guarded by the Backend
	cancel  context.CancelFunc
	ready   chan struct{} // closed when the first query was answered
	err     error         // of that

	// What was last heard of the key, and of its queue; guarded by the Backend.
	free  bool
	pair  *api.KVPair
	since time.Time // of pair
	queue queue
}

// subscription implements [driver.Subscription].
type subscription struct {
	watch *watch
	name  string // of the process
	c     chan struct{}
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	path, prefix := watchedPath(a.Key)
	if path == "" {
		return nil, errors.New("no blocking query can ask for this key")
	}
	s := &subscription{name: process(a.ID), c: make(chan struct{}, 1)}
	b.mu.Lock()
	w := b.watches[a.Key]
	switch {
	case b.shut:
		b.mu.Unlock()
		return nil, driver.ErrClosed
	case w == nil && len(b.watches) >= manyWatches:
		b.mu.Unlock()
		return nil, errManyWatches
	case w == nil:
		w = &watch{backend: b, key: a.Key, waiters: map[*subscription]bool{}, ready: make(chan struct{})}
		var watched context.Context
		watched, w.cancel = context.WithCancel(b.ctx)
		b.watches[a.Key] = w
		b.work.Go(func() { w.run(watched, query{path: path, prefix: prefix}) })
	}
	s.watch = w
	w.waiters[s] = true
	b.mu.Unlock()
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

func (s *subscription) C() <-chan struct{} { return s.c }

// Close ends the interest; the last to do so ends the query.
func (s *subscription) Close() {
	w := s.watch
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	delete(w.waiters, s)
	if len(w.waiters) == 0 {
		w.endLocked()
	}
}

// endLocked ends the query. The Backend is locked.
func (w *watch) endLocked() {
	w.cancel()
	if w.backend.watches[w.key] == w {
		delete(w.backend.watches, w.key)
	}
}

// expected returns how the lock and its queue are likely to be, if somebody here
// waits for key; and whether it is then process's turn.
func (b *Backend) expected(key, process string) (v *seen, watched, turn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watches[key]
	if w == nil {
		return &seen{key: key}, false, false
	}
	return &seen{key: key, pair: w.pair, queue: w.queue}, true, w.free && w.queue.head().name == process
}

// waiting reports whether somebody here waits for key, as process. Whoever asks after a
// look, and hears that, has seen a place that is in use, or will be given up yet: the
// last to wait ends its subscription first.
func (b *Backend) waiting(key, process string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.watches[key]; w != nil {
		for s := range w.waiters {
			if s.name == process {
				return true
			}
		}
	}
	return false
}

// remember keeps what was seen of the queue, for as long as somebody here waits.
func (b *Backend) remember(v *seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.watches[v.key]; w != nil {
		w.queue = v.queue
	}
}

// notify tells those that wait, if the key is free or may have been; else the one
// that it was given to.
func (w *watch) notify(always bool) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	var to string
	if !w.free && !always {
		if to = w.grantee(); to == "" {
			return
		}
	}
	for s := range w.waiters {
		if to != "" && s.name != to {
			continue
		}
		select {
		case s.c <- struct{}{}:
		default:
		}
	}
}

// grantee returns whom of those here the lock was given to, or "". The Backend is
// locked.
func (w *watch) grantee() string {
	if w.pair == nil {
		return ""
	}
	id := string(w.pair.Value)
	if o := w.backend.offers[id]; o != nil && w.gave(id, o) {
		return process(id)
	}
	return ""
}

// run asks until ctx ends. The first query does not block: what happens after
// it, the next one tells.
func (w *watch) run(ctx context.Context, q query) {
	defer w.cancel()
	index, err := w.ask(ctx, q, 0)
	w.err = err
	if err != nil { // whoever subscribes next tries again
		w.backend.mu.Lock()
		w.endLocked()
		w.backend.mu.Unlock()
	}
	close(w.ready)
	if err != nil {
		return
	}
	p := pace{}
	for p.wait(ctx, err != nil) {
		var next uint64
		if next, err = w.ask(ctx, q, index); err != nil {
			index = 0 // the next answer comes at once
			continue
		}
		index = following(index, next)
		w.notify(index == 0)
	}
}

// query is what a watch asks for.
type query struct {
	path   string
	prefix bool
}

func (w *watch) ask(ctx context.Context, q query, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, waitWithin)
	defer cancel()
	options := (&api.QueryOptions{WaitIndex: index, WaitTime: waitTime}).WithContext(ctx)
	var pairs api.KVPairs
	var meta *api.QueryMeta
	var err error
	if q.prefix {
		pairs, meta, err = w.backend.client.KV().List(q.path, options)
	} else {
		var pair *api.KVPair
		if pair, meta, err = w.backend.client.KV().Get(q.path, options); pair != nil {
			pairs = api.KVPairs{pair}
		}
	}
	if err != nil {
		return 0, advised(err)
	}
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	before := w.pair
	w.free, w.pair = true, nil
	for _, p := range pairs {
		if p.Key == w.key {
			w.free, w.pair = p.Session == "" && p.Flags == lockFlag, p
		}
	}
	if w.pair == nil || before == nil || before.ModifyIndex != w.pair.ModifyIndex {
		w.since = time.Now()
	}
	return meta.LastIndex, nil
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
type pace struct {
	begun  time.Time
	budget float64 // queries that may be sent at once
	failed int
}

const (
	paceBurst = 20
	paceRate  = 100 // a second
)

// wait returns when the next query may be sent: at once, but not more than
// paceRate a second for long; after failures a while later each time. It
// reports whether ctx lives.
func (p *pace) wait(ctx context.Context, failed bool) bool {
	now := time.Now()
	if p.begun.IsZero() {
		p.begun, p.budget = now, paceBurst
	}
	p.budget = min(p.budget+now.Sub(p.begun).Seconds()*paceRate, paceBurst) - 1
	p.begun = now
	if !failed {
		p.failed = 0
		if p.budget >= 0 {
			return ctx.Err() == nil
		}
		return pause(ctx, time.Second/paceRate)
	}
	d := min(20*time.Millisecond<<p.failed, time.Second)
	p.failed = min(p.failed+1, 6)
	return pause(ctx, d/2+rand.N(d/2))
}
