package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S49, S98: 10,000 cycles of acquire, cancel and loss leave no entry, lease, subscription or
// goroutine behind.
func TestTenThousandCyclesLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), newLocker(t, b.Backend, nil), nil, "theirs")
		concurrently(100, func(g int) {
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
		require.LessOrEqual(t, goroutines(), 2, "more than the watchdogs of two Lockers")
		require.NoError(t, release(theirs))
	})
}

// A Locker that was never used, or is idle again, has no goroutine except its watchdog.
func TestIdleLockerHasNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := lock.New(newScripted(), nil)
		require.Zero(t, goroutines())
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		synctest.Wait()
		require.Equal(t, 1, goroutines())
		time.Sleep(lock.DefaultTTL / 3) // until the watchdog has looked once more, as planned for the lock
		synctest.Wait()
		require.Zero(t, goroutines())
		_, held = acquire(t, t.Context(), l, nil, "k")
		time.Sleep(time.Minute)
		require.NoError(t, lock.Check(held.Context()), "it is renewed again")
		require.NoError(t, release(held))
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.Zero(t, goroutines())
	})
}
