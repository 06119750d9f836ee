package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

var reentrant = &lock.Policy{Method: "Shop.Pay", Reentrant: true}

// P8, P13, G8: a re-entry sends nothing, keeps the token, and ends by itself. The caller's own
// context never owns the lock.
func TestReentry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		token := tokenOf(t, outer)
		ctx := outer
		var nested []*lock.Hold
		for range 5 {
			var h *lock.Hold
			ctx, h = acquire(t, ctx, l, reentrant, "k")
			require.Equal(t, token, tokenOf(t, ctx))
			require.True(t, lock.Owns(ctx, "k"))
			nested = append(nested, h)
		}
		require.EqualValues(t, 1, b.acquires.Load())
		for i := len(nested) - 1; i >= 0; i-- {
			require.NoError(t, release(nested[i]))
			require.NoError(t, lock.Check(outer))
		}
		require.Zero(t, b.releases.Load())
		require.False(t, lock.Owns(t.Context(), "k"))
		_, ok := lock.Token(t.Context())
		require.False(t, ok)
		require.NoError(t, release(held))
		require.EqualValues(t, 1, b.releases.Load())
		_, ok = lock.Token(outer)
		require.False(t, ok)
		require.False(t, lock.Owns(outer, "k"))
	})
}

// A re-entry makes few allocations.
func TestReentryAllocates(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	ctx, held := acquire(t, t.Context(), l, nil, "k")
	var err error
	n := testing.AllocsPerRun(1000, func() {
		_, inner, e := l.Acquire(ctx, reentrant, "k")
		err = e
		inner.Release(&err)
	})
	require.NoError(t, err)
	require.LessOrEqual(t, n, 2.0)
	require.NoError(t, release(held))
}

// An uncontended hold on memlock makes four objects: its ID, the hold, the entry with its lease,
// and the lock in memlock.
func TestUncontendedHoldAllocates(t *testing.T) {
	l, p := newLocker(t, memlock.New(), nil), &lock.Policy{TTL: time.Minute}
	var err error
	n := testing.AllocsPerRun(1000, func() {
		_, held, e := l.Acquire(t.Context(), p, "k")
		err = e
		held.Release(&err)
	})
	require.NoError(t, err)
	require.LessOrEqual(t, n, 4.0)
}

// A nested call whose policy is not reentrant gets ErrDeadlock at once instead of waiting for ever,
// also if other locks are in between. P9: a lock on another key is no re-entry.
func TestNestedCallIsADeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		ctx, first := acquire(t, t.Context(), l, reentrant, "a")
		ctx, second := acquire(t, ctx, l, reentrant, "b")
		began := time.Now()
		for _, key := range []string{"a", "b"} {
			for _, p := range []*lock.Policy{nil, {Try: true}, {Wait: time.Second}} {
				_, held, err := l.Acquire(ctx, p, key)
				require.Nil(t, held)
				requireOnly(t, lock.ErrDeadlock, err)
			}
		}
		require.Equal(t, began, time.Now())
		_, again := acquire(t, ctx, l, reentrant, "a")
		require.NoError(t, release(again))
		require.NoError(t, release(second))
		require.NoError(t, release(first))

		// A hold of another Locker is not re-entered by this one.
		other := newLocker(t, memlock.New(), nil)
		ctx, first = acquire(t, t.Context(), l, nil, "a")
		_, second = acquire(t, ctx, other, nil, "a")
		require.NoError(t, release(second))
		require.NoError(t, release(first))
	})
}

// P7: a re-entry neither shortens nor extends the outer lease, and its policy's renew and max have
// no effect.
func TestReentryLeavesTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		outer, held := acquire(t, t.Context(), l, renewed, "k")
		ctx, inner := acquire(t, outer, l, &lock.Policy{Reentrant: true, TTL: time.Second, NoRenew: true}, "k")
		time.Sleep(5 * ttl)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(inner))
		require.NoError(t, lock.Check(outer))
		require.NoError(t, release(held))
	})
}

// P6: a hold whose lease is over is not re-entered, even if no timer has fired yet and its context
// has not ended. A re-entry that is under way is told of the loss.
func TestReentryOfALostHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = hang
		l := newLocker(t, b, nil)
		outer, held := acquire(t, t.Context(), l, renewed, "k")
		ctx, inner := acquire(t, outer, l, reentrant, "k")
		time.Sleep(ttl - lock.Margin(ttl))
		_, _, err := l.Acquire(context.WithoutCancel(outer), &lock.Policy{Try: true}, "k")
		require.Error(t, err)
		_, _, err = l.Acquire(outer, reentrant, "k")
		requireOnly(t, lock.ErrLost, err)
		synctest.Wait()
		requireLost(t, ctx, l, "k")
		requireOnly(t, lock.ErrLost, release(inner))
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// G2, S1: the clock decides, not a timer: a re-entry is refused at the very instant of the
// deadline, whatever the watchdog does.
func TestReentryChecksTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			l := newLocker(t, newScripted(), nil)
			ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl, NoRenew: true}, "k")
			_, inner := acquire(t, ctx, l, reentrant, "k")
			time.Sleep(ttl - lock.Margin(ttl))
			requireOnly(t, lock.ErrLost, release(inner))
			_, _, err := l.Acquire(ctx, reentrant, "k")
			requireOnly(t, lock.ErrLost, err)
			requireOnly(t, lock.ErrLost, release(held))
		}
	})
}

// S42, P16: only memory limits the depth of re-entries, and their end leaves nothing behind.
func TestDeepRecursion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		var down func(ctx context.Context, n int) error
		down = func(ctx context.Context, n int) error {
			if n == 0 {
				return lock.Check(ctx)
			}
			return l.Do(ctx, reentrant, "k", func(ctx context.Context) error { return down(ctx, n-1) })
		}
		require.NoError(t, down(t.Context(), 1000))
		require.EqualValues(t, 1, b.acquires.Load())
		require.EqualValues(t, 1, b.releases.Load())
	})
}
