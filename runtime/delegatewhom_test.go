package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Callees of readers that share a lease may be inside together, as the readers are.
func TestDelegationOfReadersThatShareALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, k := newScripted(), keyring(t, "stock")
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(10 * time.Millisecond)
			return do()
		}
		l, began := newLocker(t, b, nil), time.Now()
		concurrently(3, func(int) {
			outer, held := acquire(t, t.Context(), l, &lock.Policy{Read: true}, "k")
			_, in := extract(t, delegated(t, outer), k)
			require.Equal(t, 10*time.Millisecond, time.Since(began))
			time.Sleep(time.Second)
			_, _, err := lock.Extract(canceledContext(t), delegated(t, outer), k)
			requireOnly(t, lock.ErrNotAcquired, err) // each reader has one callee
			require.NoError(t, release(in))
			require.NoError(t, release(held))
		})
		require.EqualValues(t, 1, b.acquires.Load())
	})
}

func canceledContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// The same key under another prefix is another lock, also if the delegation has gone through a
// third process.
func TestDelegationIsOfAPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		a, b := newLocker(t, engine, &lock.Options{Prefix: "a:"}), newLocker(t, engine, &lock.Options{Prefix: "b:"})
		_, theirs := acquire(t, t.Context(), b, nil, "x")
		outer, held := acquire(t, t.Context(), a, nil, "x")
		ctx, in := extract(t, delegated(t, outer), keyring(t, "stock"))
		further, in2 := extract(t, delegated(t, ctx), keyring(t, "stock"))
		enters := &lock.Policy{Reentrant: true, Try: true}
		for _, ctx := range []context.Context{further, ctx} {
			_, _, err := b.Acquire(ctx, enters, "x")
			requireOnly(t, lock.ErrNotAcquired, err)
			_, nested := acquire(t, ctx, a, enters, "x")
			require.NoError(t, release(nested))
		}
		require.NoError(t, release(in2))
		for _, one := range []*lock.Hold{in, held, theirs} {
			require.NoError(t, release(one))
		}
	})
}
