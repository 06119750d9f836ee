package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// A lock that was lost stays closed for its Delay; a lock that was released does not.
func TestDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		p := &lock.Policy{TTL: 3 * time.Second, Delay: 5 * time.Second, NoRenew: true}
		begin := time.Now()
		ctx, held := acquire(t, t.Context(), l, p, "k")
		require.WithinDuration(t, begin.Add(3*time.Second), held.Deadline(), 50*time.Millisecond)
		<-ctx.Done()
		require.WithinDuration(t, begin.Add(3*time.Second), time.Now(), 50*time.Millisecond)
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		held.Release(nil) // too late: the release of a lost lock does not open it
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		require.WithinDuration(t, begin.Add(8*time.Second), time.Now(), 100*time.Millisecond)
		require.NoError(t, release(theirs))

		p = &lock.Policy{TTL: 3 * time.Second, Delay: 5 * time.Second}
		ctx, held = acquire(t, t.Context(), l, p, "k")
		time.Sleep(time.Minute) // the lease is renewed
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
		begin = time.Now()
		_, theirs = acquire(t, t.Context(), other, nil, "k")
		require.WithinDuration(t, begin, time.Now(), 50*time.Millisecond)
		require.NoError(t, release(theirs))
	})
}

// Delay begins after the ttl, also if the policy sets none: after the default, or that of
// Options.TTL.
func TestDelayWithoutATTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l := newLocker(t, engine, nil)
		for ttl, holder := range map[time.Duration]*lock.Locker{
			lock.DefaultTTL: l, time.Minute: newLocker(t, engine, &lock.Options{TTL: time.Minute}),
		} {
			p, begin := &lock.Policy{Delay: 5 * time.Second, NoRenew: true}, time.Now()
			holder.MustSupport(p)
			ctx, held := acquire(t, t.Context(), holder, p, "k")
			<-ctx.Done()
			require.InDelta(t, ttl.Seconds(), time.Since(begin).Seconds(), ttl.Seconds()/50)
			require.ErrorIs(t, release(held), lock.ErrLost)
			_, theirs := acquire(t, t.Context(), l, nil, "k")
			require.WithinDuration(t, begin.Add(ttl+5*time.Second), time.Now(), 100*time.Millisecond)
			require.NoError(t, release(theirs))
		}
	})
}
