package lock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outages are the backends at which renewals fail. The Observer hears when an outage begins and
// when it ends, in this order, from one goroutine at a time. That holds no mutex, so that a slow
// Observer delays nobody else.
type outages struct {
	any        atomic.Bool // there is one: a grant needs no mutex to see that there is none
	mu         sync.Mutex  // guards the rest
	since      map[string]time.Time
	pending    []func()
	delivering bool // a goroutine tells the Observer what is pending
}

// unlockAndDeliver unlocks o.mu. tell, which tells the Observer, is called after what is pending.
func (o *outages) unlockAndDeliver(tell func()) {
	o.pending = append(o.pending, tell)
	if o.delivering {
		o.mu.Unlock()
		return
	}
	o.delivering = true
	for len(o.pending) > 0 {
		next := o.pending[0]
		o.pending = o.pending[1:]
		o.mu.Unlock()
		next()
		o.mu.Lock()
	}
	o.delivering = false
	o.mu.Unlock()
}

// noteRenewals notes errs, the results of one round of renewals at the backend of this name.
func (l *Locker) noteRenewals(backend string, errs []error) {
	if slices.ContainsFunc(errs, func(err error) bool { return err == nil || isLost(err) }) { // it was answered
		l.endOutage(backend)
		return
	}
	o := &l.outages
	o.mu.Lock()
	if _, known := o.since[backend]; known {
		o.mu.Unlock()
		return
	}
	if o.since == nil {
		o.since = map[string]time.Time{}
	}
	o.since[backend] = time.Now()
	o.any.Store(true)
	o.unlockAndDeliver(func() { l.observeOutage(OutageBegan, backend, 0, errs[len(errs)-1]) })
}

// endOutage ends the outage at the backend of this name, if there is one.
func (l *Locker) endOutage(backend string) {
	o := &l.outages
	if !o.any.Load() {
		return
	}
	o.mu.Lock()
	since, known := o.since[backend]
	if !known {
		o.mu.Unlock()
		return
	}
	delete(o.since, backend)
	o.any.Store(len(o.since) > 0)
	lasted := time.Since(since)
	o.unlockAndDeliver(func() { l.observeOutage(OutageEnded, backend, lasted, nil) })
}

// endOutages ends them all. Nothing is renewed any more.
func (l *Locker) endOutages() {
	o := &l.outages
	o.mu.Lock()
	names := slices.Collect(maps.Keys(o.since))
	o.mu.Unlock()
	for _, name := range names {
		l.endOutage(name)
	}
}
