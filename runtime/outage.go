package lock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outages are the backends at which renewals fail. The Observer hears when one begins and when
// it ends, in this order: it is called under the mutex.
type outages struct {
	any   atomic.Bool // there is one: a grant needs no mutex to see that there is none
	mu    sync.Mutex  // guards since
	since map[string]time.Time
}

// noteRenewals notes errs, the results of one round of renewals at the backend of this name.
func (l *Locker) noteRenewals(backend string, errs []error) {
	if slices.ContainsFunc(errs, func(err error) bool { return err == nil || isLost(err) }) { // it was answered
		l.endOutage(backend)
		return
	}
	o := &l.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.since[backend]; known {
		return
	}
	if o.since == nil {
		o.since = map[string]time.Time{}
	}
	o.since[backend] = time.Now()
	o.any.Store(true)
	l.observeOutage(OutageBegan, backend, 0, errs[len(errs)-1])
}

// endOutage ends the outage at the backend of this name, if there is one.
func (l *Locker) endOutage(backend string) {
	o := &l.outages
	if !o.any.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if since, known := o.since[backend]; known {
		delete(o.since, backend)
		o.any.Store(len(o.since) > 0)
		l.observeOutage(OutageEnded, backend, time.Since(since), nil)
	}
}
