package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	lock "github.com/lockgen/lockgen/runtime"
)

// NewLocker returns a gocron.Locker that runs each job under a lock of l on the job's name. p
// may be nil. Lock blocks until the lock is held, p.Wait is over or the job's context ends;
// with Try it does not block. gocron skips a run for which Lock returns an error, and passes
// the error, which wraps one of package lock, to gocron.AfterLockError. Any number of
// schedulers may use the Locker at once.
//
// NewLocker panics with a *lock.Error if p is invalid, if l does not support its kind of lock,
// or if p has Once or Leader. gocron does not tell a Locker the tick; for a leader use [NewElector].
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

// Unlock releases the lock within a second. Its error wraps lock.ErrLost if the lock was lost
// while the job ran. gocron ignores that error; an Observer of the lock.Locker gets an event.
func (u unlocker) Unlock(context.Context) error { return u.held.Unlock() }
