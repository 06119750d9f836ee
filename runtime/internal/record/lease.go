package record

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease].
type lease struct {
	locks         *Locks
	acquisition   driver.Acquisition
	first, n      uint64 // tokens
	deadline      engine.Deadline
	term          atomic.Int64 // the length from which the deadline was computed, ns
	wanted        atomic.Bool
	mayBeReleased atomic.Bool // some attempt to release had no answer
}

// newLease returns the lease of a. p is a's party in v.
func (l *Locks) newLease(a *driver.Acquisition, p *Party, v view) *lease {
	made := &lease{locks: l, acquisition: *a, first: uint64(p.Token), n: max(p.Tokens, 1)}
	made.wanted.Store(len(v.state.Queue) > 0)
	made.extend(p, v)
	// A lease that was granted in the queue, or whose answer was lost, began earlier.
	made.term.Store(int64(max(made.Term(), min(a.TTL, time.Duration(p.Grant)*time.Microsecond))))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[a.ID] = made
	return made
}

// extend moves the deadline to the end of p's lease in v. The engine read its clock after v.at.
func (l *lease) extend(p *Party, v view) {
	left := p.Until.left(v.now)
	l.deadline.Extend(v.at.Add(left))
	l.term.Store(int64(min(left, l.acquisition.TTL)))
}

// Wanted records that other processes have begun to wait for the lock that this ID holds.
func (l *Locks) Wanted(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.leases[id]; held != nil {
		held.wanted.Store(true)
	}
}

// Deadline implements [driver.Lease].
func (l *lease) Deadline() driver.Instant { return l.deadline.Get() }

// Term implements [driver.ProvisionalLease].
func (l *lease) Term() time.Duration { return time.Duration(l.term.Load()) }

// Wanted implements [driver.WantedLease].
func (l *lease) Wanted() bool { return l.wanted.Load() }

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	v, _, err := l.change(ctx, Write{Key: l.acquisition.Key, Renews: true}, func(_ *State, p *Party, now Time) bool {
		// The state may have been read a while ago, when more of the lease was left than now.
		p.Until = After(max(p.Until.left(now), ttl).Microseconds())
		return true
	})
	if p := v.state.holder(l.acquisition.ID); p != nil && err == nil {
		l.extend(p, v)
	}
	return err
}

// change calls do to change the state in which p holds the lock by l. do reports whether it changed
// anything. The error is ErrLost if l does not hold the lock any more.
func (l *lease) change(ctx context.Context, purpose Write, do func(s *State, p *Party, now Time) bool) (v view, mayHaveRun bool, err error) {
	lost := false
	v, mayHaveRun, err = l.locks.update(ctx, purpose, func(s *State, now Time) (bool, error) {
		was := s.holder(l.acquisition.ID) != nil
		s.expire(now)
		p := s.holder(l.acquisition.ID)
		if lost = p == nil; lost {
			// The end is written to the record, so that a late renewal or attempt does not revive
			// the lease.
			s.keep(l.acquisition.MayHaveRun, l.acquisition.TTL)
			return was || l.acquisition.MayHaveRun, nil
		}
		return do(s, p, now), nil
	})
	if errors.Is(err, driver.ErrConflict) || err == nil && lost {
		err = driver.ErrLost // also if something else is at the key
	}
	if errors.Is(err, driver.ErrLost) {
		l.locks.forget(l)
	}
	return v, mayHaveRun, err
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, last uint64) error { return l.release(ctx, last, false) }

// Complete implements [driver.Completer].
func (l *lease) Complete(ctx context.Context, last uint64) error { return l.release(ctx, last, true) }

func (l *lease) release(ctx context.Context, last uint64, completed bool) error {
	l.locks.forget(l)
	tick := Text(l.acquisition.Mode.Tick)
	v, mayHaveRun, err := l.change(ctx, Write{Key: l.acquisition.Key, retryQueue: " released"}, func(s *State, p *Party, now Time) bool {
		s.giveBack(p, Token(last))
		if completed {
			s.complete(tick)
		}
		s.remove(l.acquisition.ID, now)
		s.keep(l.acquisition.MayHaveRun, l.acquisition.TTL)
		return true
	})
	if mayHaveRun {
		l.mayBeReleased.Store(true)
	}
	if errors.Is(err, driver.ErrLost) && l.mayBeReleased.Load() && (!completed || v.state.isDone(tick)) {
		// An earlier attempt, whose answer was lost, has released the lock, or the lease has ended
		// by itself. In both cases the lock is free. But a tick that is not recorded may run again:
		// that is ErrLost.
		return nil
	}
	return err
}

// Downgrade implements [driver.Downgrader].
func (l *lease) Downgrade(ctx context.Context, last uint64) error {
	_, _, err := l.change(ctx, Write{Key: l.acquisition.Key}, func(s *State, p *Party, now Time) bool {
		if p.Kind == kindRead {
			return false
		}
		s.giveBack(p, Token(last)) // otherwise readers would have a token ahead of the engine's clock
		s.downgrade(p, now)
		return true
	})
	return err
}

// forget ends the notices of Wanted for held.
func (l *Locks) forget(held *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, held.acquisition.ID)
}

// renewalsAtOnce is how many records are renewed at the same time. Each needs a request.
const renewalsAtOnce = 32

// RenewAll is [driver.BatchRenewer.RenewAll] of a Backend that has mutexes too. It renews the
// mutexes with one call of mutexes, and the records at the same time.
func RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration,
	mutexes func(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error) []error {
	errs := make([]error, len(leases))
	var others []int
	var rest []driver.Lease
	var lengths []time.Duration
	var all sync.WaitGroup
	room := make(chan struct{}, renewalsAtOnce)
	for i, l := range leases {
		if _, ok := l.(*lease); !ok {
			others, rest, lengths = append(others, i), append(rest, l), append(lengths, ttls[i])
			continue
		}
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			errs[i] = l.Renew(ctx, ttls[i])
		})
	}
	if len(rest) > 0 {
		for n, err := range mutexes(ctx, rest, lengths) {
			errs[others[n]] = err
		}
	}
	all.Wait()
	return errs
}
