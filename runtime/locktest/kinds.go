package locktest

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Kinds implements [driver.Kinded].
func (e *Engine) Kinds() driver.Kind { return e.memory.Kinds() }

// Call implements [driver.Caller].
func (e *Engine) Call(ctx context.Context, a *driver.Acquisition, n int) error {
	return e.call(ctx, func() error { return e.memory.Call(ctx, a, n) })
}

// View implements [driver.Viewer].
func (e *Engine) View(ctx context.Context, a *driver.Acquisition) (*driver.Holder, error) {
	var holder *driver.Holder
	err := e.call(ctx, func() (err error) {
		holder, err = e.memory.View(ctx, a)
		return err
	})
	return holder, err
}

// leaseOfKind is a lease that the memory grants for a lock other than a mutex.
type leaseOfKind interface {
	driver.Lease
	driver.ProvisionalLease
	driver.WantedLease
	driver.Downgrader
	driver.Completer
}

// kindLease is a lease of a lock other than a mutex. A key may have several. The engine's mutex
// guards deadline, term and look.
type kindLease struct {
	leaseOfKind
	engine      *Engine
	acquisition driver.Acquisition
	deadline    driver.Instant // according to the answers that have reached the holder
	term        time.Duration  // according to the same answers
	look        func()         // makes the Locker look at deadline
}

// addKind wraps inner, which was granted for a.
func (e *Engine) addKind(inner leaseOfKind, a *driver.Acquisition) *kindLease {
	l := &kindLease{leaseOfKind: inner, engine: e, acquisition: *a, deadline: inner.Deadline(), term: inner.Term()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds[l] = struct{}{}
	return l
}

// Deadline implements [driver.Lease].
func (l *kindLease) Deadline() driver.Instant {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	return l.deadline
}

// Term implements [driver.ProvisionalLease].
func (l *kindLease) Term() time.Duration {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	return l.term
}

// NotifyLoss implements [driver.LossNotifier].
func (l *kindLease) NotifyLoss(look func()) {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	l.look = look
}

// Renew implements [driver.Lease].
func (l *kindLease) Renew(ctx context.Context, ttl time.Duration) error {
	var end driver.Instant
	var term time.Duration
	err := l.engine.call(ctx, func() error {
		err := l.leaseOfKind.Renew(ctx, ttl)
		end, term = l.leaseOfKind.Deadline(), l.leaseOfKind.Term()
		return err
	})
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	if _, held := l.engine.kinds[l]; held && err == nil && l.deadline.Before(end) {
		l.deadline, l.term = end, term
	}
	return err
}

// Release implements [driver.Lease].
func (l *kindLease) Release(ctx context.Context, last uint64) error {
	return l.leave(ctx, last, l.leaseOfKind.Release)
}

// Complete implements [driver.Completer].
func (l *kindLease) Complete(ctx context.Context, last uint64) error {
	return l.leave(ctx, last, l.leaseOfKind.Complete)
}

func (l *kindLease) leave(ctx context.Context, last uint64, release func(context.Context, uint64) error) error {
	return l.engine.call(ctx, func() error {
		l.engine.mu.Lock()
		delete(l.engine.kinds, l)
		l.engine.mu.Unlock()
		return release(ctx, last)
	})
}

// Downgrade implements [driver.Downgrader].
func (l *kindLease) Downgrade(ctx context.Context, last uint64) error {
	return l.engine.call(ctx, func() error { return l.leaseOfKind.Downgrade(ctx, last) })
}

// endKinds ends all leases on key of locks other than mutexes. It reports whether there was one.
// The holders are told at once if tell is set, otherwise at their next renewal.
func (e *Engine) endKinds(key string, tell bool) bool {
	var ended []*kindLease
	e.mu.Lock()
	for l := range e.kinds {
		if l.acquisition.Key == key {
			delete(e.kinds, l)
			if tell {
				l.deadline = driver.Instant{}
			}
			ended = append(ended, l)
		}
	}
	e.mu.Unlock()
	for _, l := range ended {
		e.mu.Lock()
		look := l.look
		e.mu.Unlock()
		if tell && look != nil { // the holder is told before another call can be inside
			look()
		}
	}
	for _, l := range ended {
		_ = e.memory.Undo(context.Background(), &l.acquisition) // the memory never fails
	}
	return len(ended) > 0
}
