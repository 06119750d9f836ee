package locks

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	lock "github.com/lockgen/lockgen/runtime"
)

// Options of a [Monitor]. The zero value is the default, and so is nil.
type Options struct {
	// Next gets the same events and holds, such as the Observer of otellock. It may be nil.
	Next lock.Observer

	// ProfileFraction is how many waits and holds there are, on average, for one that the
	// Monitor profiles: 1 profiles all, 0 none. Each sample costs about a microsecond, for the
	// stack.
	ProfileFraction int
}

// Monitor counts what Lockers do, and serves the page that shows it. It is a
// [lock.HoldObserver], for [lock.Options], and an [http.Handler]. One Monitor may serve many Lockers,
// and its methods may be called from any number of goroutines. Make it with [New].
type Monitor struct {
	next   lock.Observer
	began  time.Time
	rows   atomic.Pointer[map[label]*row] // never written to, but replaced
	others *row                           // of labels beyond maxRows

	mu      sync.Mutex
	watched map[weak.Pointer[lock.Locker]]int // how often
	outages map[string]outage                 // by backend
	events  []noted                           // the last keptEvents, the oldest first

	fraction   int // of Options.ProfileFraction
	wait, hold profile

	shot shot
}

// outage is a backend at which no lease can be renewed.
type outage struct {
	since time.Time
	err   string
}

// noted is an event that the page shows.
type noted struct {
	At                   time.Time
	Kind                 string
	Method, Backend, Key string
	Err                  string
}

const (
	// maxRows bounds the memory if a program makes a pattern for each key at run time.
	maxRows = 1000
	// keptEvents is how many events the page shows.
	keptEvents = 50
)

// New returns a Monitor.
func New(opts *Options) *Monitor {
	if opts == nil {
		opts = &Options{}
	}
	m := &Monitor{
		next: opts.Next, began: time.Now(),
		others:  &row{label: label{method: "(all others)"}},
		watched: map[weak.Pointer[lock.Locker]]int{}, outages: map[string]outage{},
		fraction: opts.ProfileFraction,
		wait:     profile{name: "lockgen_wait", samples: map[sampleKey]sample{}},
		hold:     profile{name: "lockgen_hold", samples: map[sampleKey]sample{}},
	}
	m.rows.Store(&map[label]*row{})
	return m
}

// Watch makes the page show what l holds and waits for, until stop is called. Without it the
// page has only the counts. A Locker that nobody closes is still reported as unclosed.
func (m *Monitor) Watch(l *lock.Locker) (stop func()) {
	at := weak.Make(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[at]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.watched[at]--; m.watched[at] == 0 {
			delete(m.watched, at)
		}
	})
}

// Observe implements [lock.Observer].
func (m *Monitor) Observe(ctx context.Context, e lock.Event) {
	switch e.Kind {
	case lock.OutageBegan, lock.OutageEnded:
		m.noteOutage(e)
	case lock.Unclosed, lock.OrderCycle, lock.PermitsDiffer:
		m.note(e)
	case lock.Lost:
		m.row(e.Policy).count(e)
		m.note(e)
	case lock.Released:
		m.row(e.Policy).count(e)
		if e.Err != nil {
			m.note(e)
		}
	case lock.Acquired, lock.HandedOff, lock.Reentered, lock.Rejected:
		m.row(e.Policy).count(e)
	}
	m.sample(e)
	if m.next != nil {
		m.next.Observe(ctx, e)
	}
}

// BeginHold implements [lock.HoldObserver].
func (m *Monitor) BeginHold(ctx context.Context, e lock.Event) context.Context {
	if next, ok := m.next.(lock.HoldObserver); ok {
		return next.BeginHold(ctx, e)
	}
	return ctx
}

func (m *Monitor) noteOutage(e lock.Event) {
	m.mu.Lock()
	if e.Kind == lock.OutageBegan {
		m.outages[e.Policy.Backend] = outage{since: time.Now(), err: e.Err.Error()}
	} else {
		delete(m.outages, e.Policy.Backend)
	}
	m.mu.Unlock()
	m.note(e)
}

// note keeps e for the page.
func (m *Monitor) note(e lock.Event) {
	one := noted{At: time.Now(), Kind: e.Kind.String(), Method: e.Policy.Method, Backend: e.Policy.Backend, Key: e.Key}
	if e.Kind == lock.Released {
		one.Kind = "release not confirmed"
	}
	if e.Err != nil {
		one.Err = e.Err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == keptEvents {
		m.events = append(m.events[:0], m.events[1:]...)
	}
	m.events = append(m.events, one)
}

// row returns the counts for p.
func (m *Monitor) row(p *lock.Policy) *row {
	at := label{p.Method, p.Pattern, p.Backend}
	for {
		rows := m.rows.Load()
		if r := (*rows)[at]; r != nil {
			return r
		}
		if len(*rows) >= maxRows {
			return m.others
		}
		more := make(map[label]*row, len(*rows)+1)
		for k, r := range *rows {
			more[k] = r
		}
		r := &row{label: at}
		more[at] = r
		if m.rows.CompareAndSwap(rows, &more) {
			return r
		}
	}
}
