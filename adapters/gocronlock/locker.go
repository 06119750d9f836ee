package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	lock "github.com/lockgen/lockgen/runtime"
)

// NewLocker returns what runs each job of gocron under a lock of l on the job's name. p
// may be nil. Lock blocks as p says: with Try not at all, otherwise until the lock is
// held, p.Wait is over or the job's context ends. gocron skips a run for which Lock
// returns an error; gocron.AfterLockError hears why, an error that wraps those of package
// lock. It may be used by any number of schedulers at once.
//
// It panics with a *lock.Error if p can't be right, l does not have its kind of lock, or p
// has Once or Leader: a Locker is told no tick, and for a leader there is [NewElector].
func NewLocker(l *lock.Locker, p *lock.Policy) gocron.Locker {
	if p == nil {
		p = &lock.Policy{}
	}
	if p.Once || p.Leader {
		panic(invalid(p, "", "a gocron.Locker has neither ticks nor a leader: leave out Once and Leader"))
	}
	l.MustSupport(p)
	return &locker{locks: l, policy: p}
}

type locker struct {
	locks  *lock.Locker
	policy *lock.Policy
}

// Lock takes the lock on key, the job's name.
func (l *locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	_, held, err := l.locks.Acquire(ctx, l.policy, key)
	if err != nil {
		return nil, err
	}
	return unlocker{held}, nil
}

type unlocker struct{ held *lock.Hold }

// Unlock releases the lock within a second. Its error wraps lock.ErrLost if it was lost
// while the job ran, which gocron tells nobody: an Observer of the Locker hears it.
func (u unlocker) Unlock(context.Context) error { return u.held.Unlock() }
