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

// S6, G2: the machine slept past the end of the lease. The monotonic clock stood still meanwhile,
// but the lock is lost: Check says so at once, and the context ends when the watchdog next looks.
func TestSuspendEndsTheLease(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	short := &lock.Policy{TTL: time.Minute}
	ctx, held := acquire(t, t.Context(), l, short, "k")
	kept, second := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k2")
	require.NoError(t, lock.Check(ctx))
	lock.Suspend(10 * time.Minute)
	requireOnly(t, lock.ErrLost, lock.Check(ctx))
	require.False(t, lock.Owns(ctx, "k"))
	require.NoError(t, lock.Check(kept), "slept for less than the lease")
	_, _, err := l.Acquire(ctx, reentrant, "k")
	requireOnly(t, lock.ErrLost, err)
	<-ctx.Done()
	requireOnly(t, lock.ErrLost, context.Cause(ctx))
	requireOnly(t, lock.ErrLost, release(held))

	// A lease that is taken after the sleep counts from the time after it.
	ctx, held = acquire(t, t.Context(), l, short, "k")
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, release(held))
	require.NoError(t, release(second))
}

// Timers stand still while the machine sleeps. A lease that nobody would look at before its end
// still ends soon after the sleep.
func TestSuspendEndsAFixedLeaseSoon(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	l.NoticeSleep(20 * time.Millisecond)
	ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour, NoRenew: true}, "k")
	kept, second := acquire(t, t.Context(), l, &lock.Policy{TTL: 24 * time.Hour, NoRenew: true}, "k2")
	time.Sleep(100 * time.Millisecond) // the watchdog has looked at both leases, and would sleep for long
	lock.Suspend(2 * time.Hour)
	select {
	case <-ctx.Done():
		requireOnly(t, lock.ErrLost, context.Cause(ctx))
	case <-time.After(time.Minute):
		t.Error("the context has not ended")
	}
	requireOnly(t, lock.ErrLost, release(held))
	require.NoError(t, kept.Err())
	require.NoError(t, release(second))
}

// If the wall clock was set back by the time that the machine slept, Check does not see the sleep
// until the watchdog has looked.
func TestSuspendWithAClockThatIsSetBack(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	l.NoticeSleep(20 * time.Millisecond)
	ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
	lock.SuspendUnseen(2 * time.Hour)
	require.Eventually(t, func() bool { return lock.Check(ctx) != nil }, 10*time.Second, 5*time.Millisecond)
	requireOnly(t, lock.ErrLost, release(held))
}

// S1: a renewal that was sent before the machine slept, and answered after, does not count as a
// success.
func TestSuspendDuringARenewal(t *testing.T) {
	b := newScripted()
	b.onRenew = func(_ context.Context, do func() error) error {
		defer lock.Suspend(time.Minute)
		return do()
	}
	l := newLocker(t, b, nil)
	ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Second}, "k")
	<-ctx.Done()
	requireOnly(t, lock.ErrLost, context.Cause(ctx))
	requireOnly(t, lock.ErrLost, release(held))
}

// The clock of a bubble is not that of the machine. What is measured on the one does not affect
// leases on the other, in the same process at the same time.
func TestBubblesDoNotDisturbRealLeases(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 2 * time.Hour}, "k") // longer than the sleep, if it were seen here
	done := make(chan struct{})
	go func() {
		defer close(done)
		synctest.Test(t, func(t *testing.T) {
			l := newLocker(t, memlock.New(), nil)
			ctx, held := acquire(t, t.Context(), l, nil, "k")
			time.Sleep(time.Hour)
			lock.Suspend(time.Hour / 2)
			require.NoError(t, lock.Check(ctx))
			lock.Suspend(-time.Hour / 2)
			require.NoError(t, release(held))
		})
	}()
	<-done
	require.NoError(t, lock.Check(ctx))
	_, inner := acquire(t, ctx, l, reentrant, "k")
	require.NoError(t, release(inner))
	require.NoError(t, release(held))
}

func TestInstant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		i := driver.Now().Add(time.Second)
		require.Equal(t, time.Second, i.Left())
		time.Sleep(time.Second)
		require.Zero(t, i.Left())
		time.Sleep(time.Second)
		require.Equal(t, -time.Second, i.Left())
	})
}
