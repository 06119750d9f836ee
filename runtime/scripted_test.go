package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// scripted is memlock with hooks that script what an engine can do to its client. A hook's argument
// do is memlock's own step; without a hook only that step runs.
type scripted struct {
	*memlock.Backend
	onAcquire   func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error)
	onUndo      func(ctx context.Context, a *driver.Acquisition) error
	onRenew     func(ctx context.Context, do func() error) error
	onRelease   func(ctx context.Context, last uint64, do func() error) error
	onSubscribe func(ctx context.Context, a *driver.Acquisition, do func() (driver.Subscription, error)) (driver.Subscription, error)

	muted                               atomic.Bool // no acquire is answered any more
	acquires, undos, renewals, releases atomic.Int64
	closes, attaches                    atomic.Int64

	mu      sync.Mutex
	keys    []string // in the order in which they were acquired
	undone  []string // IDs of acquisitions
	freed   []string // keys, in the order in which their releases were sent
	batches []int    // lengths of RenewAll's calls
}

func newScripted() *scripted { return &scripted{Backend: memlock.New()} }

func (s *scripted) Attach() { s.attaches.Add(1) }

func (s *scripted) Close() error {
	s.closes.Add(1)
	return s.Backend.Close()
}

func (s *scripted) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	s.acquires.Add(1)
	s.mu.Lock()
	s.keys = append(s.keys, a.Key)
	s.mu.Unlock()
	do := func() (driver.Lease, error) {
		sent := driver.Now()
		inner, err := s.Backend.Acquire(ctx, a)
		if err != nil {
			return nil, err
		}
		return &scriptedLease{Lease: inner, script: s, key: a.Key, deadline: sent.Add(a.TTL)}, nil
	}
	switch {
	case s.muted.Load():
		return s.silent(ctx)
	case s.onAcquire == nil:
		return do()
	}
	return s.onAcquire(ctx, a, do)
}

// mute makes s answer no acquire from now on.
func (s *scripted) mute() { s.muted.Store(true) }

// silent answers an acquire only when ctx ends, with ErrIndeterminate.
func (s *scripted) silent(ctx context.Context) (driver.Lease, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
}

func (s *scripted) Undo(ctx context.Context, a *driver.Acquisition) error {
	s.undos.Add(1)
	s.mu.Lock()
	s.undone = append(s.undone, a.ID)
	s.mu.Unlock()
	if s.onUndo == nil {
		return s.Backend.Undo(ctx, a)
	}
	return s.onUndo(ctx, a)
}

func (s *scripted) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	do := func() (driver.Subscription, error) { return s.Backend.Subscribe(ctx, a) }
	if s.onSubscribe == nil {
		return do()
	}
	return s.onSubscribe(ctx, a, do)
}

func (s *scripted) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	s.mu.Lock()
	s.batches = append(s.batches, len(leases))
	s.mu.Unlock()
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

// seen returns a copy of one of s's records.
func seen[T any](s *scripted, record *[]T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*record)
}

// plain hides what s can do beyond Backend: it renews leases one by one.
func (s *scripted) plain() driver.Backend { return struct{ driver.Backend }{s} }

type scriptedLease struct {
	driver.Lease
	script *scripted
	key    string

	mu       sync.Mutex
	deadline driver.Instant // according to the answers so far
}

func (l *scriptedLease) Deadline() driver.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *scriptedLease) Renew(ctx context.Context, ttl time.Duration) error {
	l.script.renewals.Add(1)
	sent := driver.Now()
	do := func() error { return l.Lease.Renew(ctx, ttl) }
	err := l.script.renew(ctx, do)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deadline = sent.Add(ttl)
	}
	return err
}

func (l *scriptedLease) Release(ctx context.Context, last uint64) error {
	l.script.releases.Add(1)
	l.script.mu.Lock()
	l.script.freed = append(l.script.freed, l.key)
	l.script.mu.Unlock()
	do := func() error { return l.Lease.Release(ctx, last) }
	if l.script.onRelease == nil {
		return do()
	}
	return l.script.onRelease(ctx, last, do)
}

func (s *scripted) renew(ctx context.Context, do func() error) error {
	if s.onRenew == nil {
		return do()
	}
	return s.onRenew(ctx, do)
}

// hang gives no answer until ctx ends, like a stopped server.
func hang(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// wait is a request or an answer that takes d.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
