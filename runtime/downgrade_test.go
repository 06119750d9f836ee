package lock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

var nestedWriter = &lock.Policy{Write: true, Reentrant: true}

// A hold whose nested call is inside does not leave the write side: a reader would come in
// beside that. The nested call may be a level deeper, below one that reads.
func TestDowngradeBesideANestedWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		tries := &lock.Policy{Read: true, Try: true}
		ctx, held := acquire(t, t.Context(), l, nestedWriter, "k")
		inner, read := acquire(t, ctx, l, &lock.Policy{Read: true}, "k")
		innermost, write := acquire(t, inner, l, nestedWriter, "k")
		err := held.Downgrade(t.Context())
		requireOnly(t, lock.ErrInvalid, err)
		require.ErrorContains(t, err, "a nested call is inside")
		_, _, err = other.Acquire(t.Context(), tries, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		require.NoError(t, lock.Check(innermost))
		require.NoError(t, write.Unlock())
		require.NoError(t, read.Unlock())

		require.NoError(t, held.Downgrade(t.Context()))
		require.Equal(t, "read", l.Snapshot().Holds[0].Kind)
		_, beside := acquire(t, t.Context(), other, tries, "k")
		_, read = acquire(t, ctx, l, &lock.Policy{Read: true, Reentrant: true}, "k")
		require.NoError(t, held.Downgrade(t.Context()), "it reads already, and so does who is inside")
		_, _, err = l.Acquire(ctx, nestedWriter, "k")
		requireOnly(t, lock.ErrDeadlock, err)
		for _, h := range []*lock.Hold{read, beside, held} {
			require.NoError(t, h.Unlock())
		}
	})
}

// Of a Downgrade and a nested writer that come at the same moment one is refused.
func TestDowngradeRacesWithANestedWriter(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	for range 5000 {
		ctx, held := acquire(t, t.Context(), l, nestedWriter, "k")
		var downgraded, wrote error
		left := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			downgraded = held.Downgrade(ctx)
			close(left)
		})
		both.Go(func() {
			wrote = l.Do(ctx, nestedWriter, "k", func(context.Context) error {
				<-left
				return nil
			})
		})
		both.Wait()
		if downgraded == nil {
			requireOnly(t, lock.ErrDeadlock, wrote)
		} else {
			requireOnly(t, lock.ErrInvalid, downgraded)
			require.NoError(t, wrote)
		}
		require.NoError(t, held.Unlock())
	}
}
