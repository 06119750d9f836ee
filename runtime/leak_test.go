package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S49, S98: 10,000 cycles of acquire, cancel and loss leave no entry, lease,
// subscription or goroutine.
func TestTenThousandCyclesLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), newLocker(t, b.Backend, nil), nil, "theirs")
		before := runtime.NumGoroutine()
		together(100, func(g int) {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%5)*time.Millisecond)
				p, key := &lock.Policy{TTL: 3 * time.Millisecond}, fmt.Sprint("k", i%10)
				if i%10 == 0 {
					key = "theirs"
				}
				if _, held, err := l.Acquire(ctx, p, key); err == nil {
					time.Sleep(time.Duration(g%3) * time.Millisecond)
					held.Release(nil)
				}
				cancel()
			}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Zero(t, l.Entries())
		require.Zero(t, l.Watched())
		require.LessOrEqual(t, runtime.NumGoroutine(), before+1, "more than the watchdog")
		require.NoError(t, release(theirs))
	})
}

// A Locker that was never used, or is idle again, has no more than its watchdog.
func TestIdleLockerHasNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		l := lock.New(newScripted(), nil)
		require.Equal(t, before, runtime.NumGoroutine())
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		synctest.Wait()
		require.Equal(t, before+1, runtime.NumGoroutine())
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, before, runtime.NumGoroutine())
	})
}
