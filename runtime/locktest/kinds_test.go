package locktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// The switches also work for locks other than mutexes.
func TestSwitchesOfKinds(t *testing.T) {
	for _, p := range []lock.Policy{{Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		synctest.Test(t, func(t *testing.T) {
			p.TTL = 3 * time.Second
			e := locktest.New(t)
			l := e.Locker(nil)
			l.MustSupport(&p)
			ctx, held, err := l.Acquire(t.Context(), &p, "k")
			require.NoError(t, err)
			e.Expire("k")
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorIs(t, held.Unlock(), lock.ErrLost)

			ctx, held, err = l.Acquire(t.Context(), &p, "k")
			require.NoError(t, err)
			e.Lose("k")
			require.NoError(t, lock.Check(ctx), "the holder learns of it at its next renewal")
			_, other, err := e.Locker(nil).Acquire(t.Context(), &lock.Policy{Write: p.Read || p.Write, Fair: p.Fair, Permits: p.Permits, Weight: p.Permits, Try: true}, "k")
			require.NoError(t, err)
			<-ctx.Done()
			require.ErrorIs(t, held.Unlock(), lock.ErrLost)
			require.NoError(t, other.Unlock())

			e.LoseReplies(1)
			_, _, err = l.Acquire(t.Context(), &p, "k")
			require.ErrorIs(t, err, lock.ErrIndeterminate)
			ctx, held, err = l.Acquire(t.Context(), &p, "k")
			require.NoError(t, err)
			require.NoError(t, lock.Check(ctx))
			require.NoError(t, held.Unlock())
		})
	}
}

// Answers are delayed for locks of every kind, so a renewal may come too late.
func TestSlowRenewals(t *testing.T) {
	for _, p := range []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		synctest.Test(t, func(t *testing.T) {
			p.TTL = 3 * time.Second
			e := locktest.New(t)
			ctx, held, err := e.Locker(nil).Acquire(t.Context(), &p, "k")
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.NoError(t, lock.Check(ctx))
			e.Delay(5 * time.Second)
			time.Sleep(4 * time.Second)
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost, "%+v", p)
			e.Heal()
			require.ErrorIs(t, held.Unlock(), lock.ErrLost)
		})
	}
}

// Held reports locks of all kinds.
func TestHeldOfKinds(t *testing.T) {
	for _, p := range []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		e := locktest.New(t)
		require.False(t, e.Held("k"))
		_, held, err := e.Locker(nil).Acquire(t.Context(), &p, "k")
		require.NoError(t, err)
		require.True(t, e.Held("k"), "%+v", p)
		require.False(t, e.Held("other"))
		require.NoError(t, held.Unlock())
		require.False(t, e.Held("k"))
	}
}

// A lock that was granted with a short lease is not over for its holder while the first renewal is
// under way.
func TestFirstRenewalThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &lock.Policy{Write: true, TTL: 30 * time.Second}
		e := locktest.New(t)
		_, held, err := e.Locker(nil).Acquire(t.Context(), p, "k")
		require.NoError(t, err)
		other, done := e.Locker(nil), make(chan error)
		go func() {
			done <- other.Do(t.Context(), p, "k", func(ctx context.Context) error {
				for range 1000 {
					if err := lock.Check(ctx); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				return nil
			})
		}()
		time.Sleep(time.Second)
		e.Delay(100 * time.Millisecond)
		held.Release(nil)
		require.NoError(t, <-done)
	})
}
