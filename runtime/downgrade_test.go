package lock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var nestedWriter = &lock.Policy{Write: true, Reentrant: true}

// A hold can't be downgraded while a nested call that writes is inside, because a reader would come
// in next to that call. The nested call may be one level deeper, inside a call that reads.
func TestDowngradeDuringANestedWriter(t *testing.T) {
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
		_, reader := acquire(t, t.Context(), other, tries, "k")
		_, read = acquire(t, ctx, l, &lock.Policy{Read: true, Reentrant: true}, "k")
		require.NoError(t, held.Downgrade(t.Context()), "it reads already, and so does who is inside")
		_, _, err = l.Acquire(ctx, nestedWriter, "k")
		requireOnly(t, lock.ErrDeadlock, err)
		for _, h := range []*lock.Hold{read, reader, held} {
			require.NoError(t, h.Unlock())
		}
	})
}

// noDowngrade is an engine that does not answer Downgrade.
type noDowngrade struct{ *hooked }

func (b noDowngrade) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	lease, err := b.Backend.Acquire(ctx, a)
	return noDowngradeLease{lease}, err
}

type noDowngradeLease struct{ driver.Lease }

func (noDowngradeLease) Downgrade(ctx context.Context, _ uint64) error {
	<-ctx.Done()
	return ctx.Err()
}

// S33: if a hold is lost while the engine does not answer Downgrade, the caller gets ErrLost, not
// the engine's silence.
func TestDowngradeOfALockLostMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, noDowngrade{&hooked{Backend: memlock.New()}}, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{Write: true, NoRenew: true}, "k")
		requireOnly(t, lock.ErrLost, held.Downgrade(ctx))
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

// If Downgrade and a nested writer come at the same moment, one of them is refused.
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
