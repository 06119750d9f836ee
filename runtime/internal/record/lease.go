package record

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease].
type lease struct {
	locks      *Locks
	key, id    string
	tick       Text          // of Kind Once
	ttl        time.Duration // that the acquisition asked for
	first, n   uint64        // tokens
	mayHaveRun bool          // some attempt to acquire had no answer
	deadline   engine.Deadline
	term       atomic.Int64 // the length that the deadline was computed with, ns
	wanted     atomic.Bool
	freed      atomic.Bool // perhaps: some attempt to release had no answer
}

// newLease returns the lease of a, which is p's in v.
func (l *Locks) newLease(a *driver.Acquisition, p *Party, v view) *lease {
	n := &lease{locks: l, key: a.Key, id: a.ID, tick: Text(a.Mode.Tick), ttl: a.TTL, first: uint64(p.Token), n: max(p.Tokens, 1), mayHaveRun: a.MayHaveRun}
	n.wanted.Store(len(v.state.Queue) > 0)
	n.extend(p, v)
	// If it was let in while it waited, or its answer was lost, it began longer ago.
	n.term.Store(int64(max(n.Term(), min(a.TTL, time.Duration(p.Grant)*time.Microsecond))))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[a.ID] = n
	return n
}

// extend moves the deadline to that of p in v. The engine read its clock after it was asked.
func (l *lease) extend(p *Party, v view) {
	left := p.Until.from(v.now)
	l.deadline.Extend(v.at.Add(left))
	l.term.Store(int64(min(left, l.ttl)))
}

// Wanted notes that others have begun to wait for the lock that this ID holds.
func (l *Locks) Wanted(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.leases[id]; n != nil {
		n.wanted.Store(true)
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
	v, _, err := l.locks.update(ctx, l.key, false, func(s *State, now Time) (bool, error) {
		s.expire(now)
		p := s.holder(l.id)
		if p == nil {
			return false, driver.ErrLost
		}
		// The state may have been seen a while ago, when more was left than is now.
		p.Until = After(max(p.Until.from(now), ttl).Microseconds())
		return true, nil
	})
	if err = lost(err); errors.Is(err, driver.ErrLost) {
		l.locks.letGo(l)
	}
	if p := v.state.holder(l.id); p != nil && err == nil {
		l.extend(p, v)
	}
	return err
}

// lost says of something else that is at the key that the lock is not there.
func lost(err error) error {
	if errors.Is(err, driver.ErrConflict) {
		return driver.ErrLost
	}
	return err
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, last uint64) error { return l.release(ctx, last, false) }

// Complete implements [driver.Completer].
func (l *lease) Complete(ctx context.Context, last uint64) error { return l.release(ctx, last, true) }

func (l *lease) release(ctx context.Context, last uint64, completed bool) error {
	v, mayHaveRun, err := l.locks.update(ctx, l.key, false, func(s *State, now Time) (bool, error) {
		s.expire(now)
		if p := s.holder(l.id); p != nil {
			s.giveBack(p, Token(last))
			if completed {
				s.complete(l.tick)
			}
		}
		if inside, _ := s.remove(l.id, now); !inside {
			return false, driver.ErrLost
		}
		s.keep(l.mayHaveRun, l.ttl)
		return true, nil
	})
	if mayHaveRun {
		l.freed.Store(true)
	}
	if err = lost(err); err == nil || errors.Is(err, driver.ErrLost) {
		l.locks.letGo(l)
	}
	if errors.Is(err, driver.ErrLost) && l.freed.Load() && (!completed || v.state.isDone(l.tick)) {
		// It was freed by an attempt whose answer was lost. If not by that, it has ended all
		// the same; but a tick that is not recorded may be run again.
		return nil
	}
	return err
}

// Downgrade implements [driver.Downgrader].
func (l *lease) Downgrade(ctx context.Context) error {
	_, _, err := l.locks.update(ctx, l.key, false, func(s *State, now Time) (bool, error) {
		s.expire(now)
		p := s.holder(l.id)
		switch {
		case p == nil:
			return false, driver.ErrLost
		case p.Kind == kindRead:
			return false, nil
		}
		s.downgrade(p, now)
		return true, nil
	})
	return lost(err)
}

func (l *Locks) letGo(n *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, n.id)
}
