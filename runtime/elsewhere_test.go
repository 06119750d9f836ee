package lock_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// A second Locker on the same Backend, called with a context that owns the key, would wait for its
// own caller.
func TestAnotherLockerUnderTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		one, two := newLocker(t, b, nil), newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), one, nil, "k")
		_, _, err := two.Acquire(ctx, reentrant, "k")
		requireOnly(t, lock.ErrDeadlock, err)
		_, _, err = two.AcquireAll(ctx, requests("a", "k")...)
		requireOnly(t, lock.ErrDeadlock, err)

		inner, other := acquire(t, ctx, two, nil, "another key")
		require.True(t, lock.Owns(inner, "another key"))
		require.NoError(t, release(other))
		require.NoError(t, release(held))
		_, held = acquire(t, t.Context(), two, nil, "k")
		require.NoError(t, release(held))
	})
}

// AcquireAll refuses two policies for one key that ask for different things, and names the
// differences.
func TestTwoPoliciesForOneKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		short, long := &lock.Policy{TTL: lock.DefaultTTL / 2, Pattern: "<a>"}, &lock.Policy{Pattern: "<b>"}
		_, _, err := l.AcquireAll(t.Context(), lock.Request{Policy: short, Key: "k"}, lock.Request{Policy: long, Key: "k"})
		requireOnly(t, lock.ErrInvalid, err)
		require.ErrorContains(t, err, "two policies for one key differ: TTL is 15s and 30s; give")
		_, _, err = l.AcquireAll(t.Context(), lock.Request{Policy: &lock.Policy{Try: true, Queue: 2}, Key: "k"}, lock.Request{Key: "k"})
		require.ErrorContains(t, err, "two policies for one key differ: Try is true and false, Queue is 2 and 0; give")
		require.Zero(t, b.acquires.Load())

		// The names in two directives may differ, and a default may be written out.
		same := &lock.Policy{TTL: lock.DefaultTTL, Pattern: "<c>", Method: "M"}
		_, held, err := l.AcquireAll(t.Context(), lock.Request{Policy: same, Key: "k"}, lock.Request{Policy: long, Key: "k"}, lock.Request{Key: "k"})
		require.NoError(t, err)
		require.EqualValues(t, 1, b.acquires.Load())
		require.NoError(t, release(held))
	})
}

// The method's error may wrap the loss of another lock. That does not hide the loss of this lock.
// The loss of this lock itself is reported once.
func TestLossOfThisLockAndOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		for _, c := range []struct {
			key  string
			said int
		}{{"another", 2}, {"k", 1}} {
			p := &lock.Policy{TTL: lock.MinTTL * 100, NoRenew: true}
			ctx, held := acquire(t, t.Context(), l, p, "k")
			<-ctx.Done() // the lease is over
			err := error(&lock.Error{Op: "hold", Key: c.key, Err: lock.ErrLost})
			held.Release(&err)
			require.Equal(t, c.said, countLosses(err), "%v", err)
			require.ErrorIs(t, err, lock.ErrLost)
		}
	})
}

// countLosses counts the lock errors in err.
func countLosses(err error) (n int) {
	if at := (*lock.Error)(nil); errors.As(err, &at) && err == error(at) {
		return 1
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			n += countLosses(one)
		}
	}
	return n
}
