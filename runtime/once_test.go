package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// closeAtOnce closes l with no time to wait, so that it loses its holds.
func closeAtOnce(t *testing.T, l *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Close(ctx), context.Canceled)
}

// A run that was lost before its release completes nothing, even while the engine still has its
// lease and would mark the tick: the caller got ErrLost.
func TestLostRunCompletesNothing(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, l *lock.Locker){
		"its lease is over":     func(*testing.T, *lock.Locker) { time.Sleep(9950 * time.Millisecond) },
		"its Locker was closed": closeAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine, once := locktest.New(t), &lock.Policy{Once: true, TTL: 10 * time.Second, NoRenew: true}
				a, b := engine.Locker(nil), engine.Locker(nil)
				_, held, err := a.AcquireOnce(t.Context(), once, "k", "1")
				require.NoError(t, err)
				held.Complete()
				lose(t, a)
				require.ErrorIs(t, held.Unlock(), lock.ErrLost)
				synctest.Wait() // the lease is released in the background
				_, held, err = b.AcquireOnce(t.Context(), once, "k", "1")
				require.NoError(t, err)
				held.Complete()
				require.NoError(t, held.Unlock())
			})
		})
	}
}

// A run whose lock AtLeast keeps is completed, even if Close ends the hold: the caller got nil.
func TestRunKeptByAtLeastIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, once := locktest.New(t), &lock.Policy{Once: true, AtLeast: time.Minute}
		a, b := engine.Locker(nil), engine.Locker(nil)
		_, held, err := a.AcquireOnce(t.Context(), once, "k", "1")
		require.NoError(t, err)
		held.Complete()
		require.NoError(t, held.Unlock())
		closeAtOnce(t, a)
		_, _, err = b.AcquireOnce(t.Context(), once, "k", "1")
		require.ErrorIs(t, err, lock.ErrDone)
	})
}
