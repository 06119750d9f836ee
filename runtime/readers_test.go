package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that comes to read while another one asks the engine, and can't share what that is
// granted, since it is much longer or shorter than its own, does not wait for it to leave.
func TestReadersOfDifferentLengths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if err := wait(ctx, time.Second); err != nil {
				return nil, err
			}
			return do()
		}
		l, begin := newLocker(t, b, nil), time.Now()
		lengths := []time.Duration{10 * time.Second, time.Minute, 5 * time.Second}
		together(len(lengths), func(i int) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			p := &lock.Policy{Read: true, TTL: lengths[i]}
			require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error {
				require.LessOrEqual(t, time.Since(begin), 3*time.Second)
				time.Sleep(time.Minute)
				return nil
			}))
		})
	})
}

// hooked is an engine on whose leases something happens when the Locker asks for a deadline.
type hooked struct {
	driver.Backend
	onDeadline func()
}

func (b *hooked) Kinds() driver.Kind { return b.Backend.(driver.Kinded).Kinds() }

func (b *hooked) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	inner, err := b.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &hookedLease{inner, b}, nil
}

type hookedLease struct {
	driver.Lease
	b *hooked
}

func (l *hookedLease) Deadline() driver.Instant {
	if f := l.b.onDeadline; f != nil {
		l.b.onDeadline = nil
		f()
	}
	return l.Lease.Deadline()
}

func (l *hookedLease) Downgrade(ctx context.Context, last uint64) error {
	return l.Lease.(driver.Downgrader).Downgrade(ctx, last)
}

// A downgrade that comes as the hold is released leaves the next writer, who has the lease
// handed on, alone.
func TestDowngradeBesideARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &hooked{Backend: memlock.New()}
		l, other, write := newLocker(t, b, nil), newLocker(t, b, nil), &lock.Policy{Write: true}
		_, first := acquire(t, t.Context(), l, write, "k")
		turns := make(chan *lock.Hold)
		for range 2 {
			go func() {
				_, held := acquire(t, t.Context(), l, write, "k")
				turns <- held
			}()
		}
		synctest.Wait()
		require.NoError(t, release(first))
		second := <-turns // on a lease that can be handed on
		var third *lock.Hold
		b.onDeadline = func() {
			require.NoError(t, release(second))
			third = <-turns
		}
		require.ErrorIs(t, second.Downgrade(t.Context()), lock.ErrLost)
		require.NotNil(t, third)
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Read: true, Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(third))
	})
}
