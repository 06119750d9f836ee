package lock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outages are the backends at which renewals fail. The Observer hears when one begins and when
// it ends, in this order. It is told without a mutex: an Observer that takes its time holds up
// nobody at another backend.
type outages struct {
	any atomic.Bool // there is one: a grant needs no mutex to see that there is none
	mu  sync.Mutex  // guards the rest
	at  map[string]*outage
}

// outage is in the table until the Observer has heard of its end.
type outage struct {
	since time.Time
	told  chan struct{} // closed when the Observer has heard of the beginning
	over  bool
}

// noteRenewals notes errs, the results of one round of renewals at the backend of this name.
func (l *Locker) noteRenewals(backend string, errs []error) {
	if slices.ContainsFunc(errs, func(err error) bool { return err == nil || isLost(err) }) { // it was answered
		l.endOutage(backend)
		return
	}
	o := &l.outages
	o.mu.Lock()
	if o.at[backend] != nil {
		o.mu.Unlock()
		return
	}
	if o.at == nil {
		o.at = map[string]*outage{}
	}
	begun := &outage{since: time.Now(), told: make(chan struct{})}
	o.at[backend] = begun
	o.any.Store(true)
	o.mu.Unlock()
	l.observeOutage(OutageBegan, backend, 0, errs[len(errs)-1])
	close(begun.told)
}

// endOutage ends the outage at the backend of this name, if there is one.
func (l *Locker) endOutage(backend string) {
	o := &l.outages
	if !o.any.Load() {
		return
	}
	o.mu.Lock()
	ended := o.at[backend]
	if ended == nil || ended.over {
		o.mu.Unlock()
		return
	}
	ended.over = true
	lasted := time.Since(ended.since)
	o.mu.Unlock()
	<-ended.told
	l.observeOutage(OutageEnded, backend, lasted, nil)
	o.mu.Lock()
	delete(o.at, backend)
	o.any.Store(len(o.at) > 0)
	o.mu.Unlock()
}

// endOutages ends them all. Nothing is renewed any more.
func (l *Locker) endOutages() {
	o := &l.outages
	o.mu.Lock()
	names := slices.Collect(maps.Keys(o.at))
	o.mu.Unlock()
	for _, name := range names {
		l.endOutage(name)
	}
}
