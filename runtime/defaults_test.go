package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Options.TTL and Options.Wait apply to policies that don't set their own.
func TestDefaultsOfTheLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var asked time.Duration
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			asked = a.TTL
			return do()
		}
		l := newLocker(t, b, &lock.Options{TTL: 7 * time.Second, Wait: 2 * time.Second, HandOff: -1})
		_, held := acquire(t, t.Context(), l, nil, "k")
		defer held.Release(nil)
		assert.Equal(t, 7*time.Second, asked)
		_, own := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Second}, "other")
		assert.Equal(t, time.Second, asked)
		require.NoError(t, release(own))

		for _, tc := range []struct {
			p    *lock.Policy
			wait time.Duration
		}{
			{nil, 2 * time.Second},
			{&lock.Policy{Wait: 3 * time.Second}, 3 * time.Second},
			{&lock.Policy{Try: true}, 0},
		} {
			began := time.Now()
			_, _, err := l.Acquire(t.Context(), tc.p, "k")
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			assert.Equal(t, tc.wait, time.Since(began))
			_, _, err = l.AcquireAll(t.Context(), lock.Requests(tc.p, []string{"j", "k"})...)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			assert.Equal(t, 2*tc.wait, time.Since(began))
		}
	})
}

// A merged section does not end with the default wait, which is that of its callers: they come and
// go.
func TestDefaultWaitDoesNotEndASection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), &lock.Options{Wait: 2 * time.Second})
		_, held := acquire(t, t.Context(), l, nil, "k")
		m := lock.NewMerger[int, int](l, &lock.Policy{}, 8)
		do := func() error {
			_, err := m.Do(t.Context(), "k", 1, func(_ context.Context, reqs []int) ([]int, error) { return reqs, nil })
			return err
		}
		first := make(chan error, 1)
		go func() { first <- do() }()
		time.Sleep(time.Second)
		second := make(chan error, 1)
		go func() { second <- do() }()
		require.ErrorIs(t, <-first, lock.ErrNotAcquired)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, release(held))
		require.NoError(t, <-second)
	})
}

// A mistake in the defaults is reported when the Locker is made.
func TestBadDefaults(t *testing.T) {
	assert.PanicsWithValue(t, "lock: Options: invalid: Wait is -1ns; it must not be negative (Try means not to wait)", func() {
		lock.New(memlock.New(), &lock.Options{Wait: -1})
	})
	assert.PanicsWithValue(t, "lock: Options: invalid: TTL is 1ns; the shortest lease is 1ms (0 means 30s)", func() {
		lock.New(memlock.New(), &lock.Options{TTL: 1})
	})
}

// Locks of two environments that share an engine don't collide, and callers see keys without the
// prefix.
func TestPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
			assert.Equal(t, "staging:k", a.Key)
			return b.Backend.Undo(ctx, a)
		}
		staging, live := newLocker(t, b, &lock.Options{Prefix: "staging:"}), newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), staging, nil, "k")
		assert.Equal(t, "k", held.Key())
		assert.True(t, lock.Owns(ctx, "k"))
		_, other := acquire(t, ctx, live, nil, "k") // nested, but another key
		_, _, err := live.Acquire(ctx, nil, "staging:k")
		require.ErrorIs(t, err, lock.ErrDeadlock)
		_, _, err = live.Acquire(t.Context(), &lock.Policy{Try: true}, "staging:k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(other))

		third := newLocker(t, b, &lock.Options{Prefix: "staging:"})
		for range 20 { // the place in the engine's queue is given up by either Locker
			ended, cancel := context.WithTimeout(t.Context(), time.Second)
			concurrently(3, func(int) {
				assert.ErrorIs(t, third.Do(ended, nil, "k", func(context.Context) error { return nil }), context.DeadlineExceeded)
			})
			cancel()
		}
		require.NoError(t, release(held))
		time.Sleep(time.Second)
		for _, key := range b.keys {
			assert.Contains(t, []string{"staging:k", "k"}, key)
		}
		_, again := acquire(t, t.Context(), live, &lock.Policy{Try: true}, "staging:k")
		require.NoError(t, release(again))
	})
}

// The keys of conditions, of leaders and of AcquireAll have the prefix too.
func TestPrefixOfOtherKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		staging, live := newLocker(t, b, &lock.Options{Prefix: "staging:", Name: "s"}), newLocker(t, b, &lock.Options{Name: "l"})
		p := &lock.Policy{Leader: true}
		require.NoError(t, staging.Lead(t.Context(), p, "job", func(ctx context.Context) error {
			here, err := staging.Leader(ctx, p, "job")
			require.NoError(t, err)
			assert.Equal(t, "s", here.Name)
			there, err := live.Leader(ctx, p, "job")
			require.NoError(t, err)
			assert.Nil(t, there)
			return nil
		}))
		ready := make(chan struct{})
		c, waited := lock.NewCond(staging, "c"), make(chan error, 1)
		go func() {
			waited <- staging.Do(t.Context(), nil, "c", func(ctx context.Context) error {
				close(ready)
				return c.Wait(ctx)
			})
		}()
		<-ready
		signal := func(l *lock.Locker) {
			require.NoError(t, l.Do(t.Context(), nil, "c", lock.NewCond(l, "c").Signal))
		}
		time.Sleep(time.Second)
		signal(live)
		time.Sleep(time.Second)
		require.Empty(t, waited)
		signal(staging)
		require.NoError(t, <-waited)

		_, several, err := staging.AcquireAll(t.Context(), lock.Requests(nil, []string{"a", "b", "c", "d", "e"})...)
		require.NoError(t, err)
		require.NoError(t, live.Do(t.Context(), &lock.Policy{Try: true}, "a", func(context.Context) error { return nil }))
		require.ErrorIs(t, live.Do(t.Context(), &lock.Policy{Try: true}, "staging:e", func(context.Context) error { return nil }), lock.ErrNotAcquired)
		require.NoError(t, release(several))
	})
}

// Require reports whether a context holds the lock that its code needs.
func TestRequire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var away atomic.Bool
		b.onRenew = func(_ context.Context, do func() error) error {
			if away.Load() {
				return driver.ErrUnavailable
			}
			return do()
		}
		l := newLocker(t, b, nil)
		err := lock.Require(t.Context())
		require.ErrorIs(t, err, lock.ErrNotHeld)
		assert.EqualError(t, err, "lock: require: not under the lock: the context is under no lock at all")
		assert.EqualError(t, lock.Require(t.Context(), "k"), "lock: require k: not under the lock")

		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl}, "k")
		require.NoError(t, lock.Require(ctx))
		require.NoError(t, lock.Require(ctx, "k"))
		require.ErrorIs(t, lock.Require(ctx, "k", "j"), lock.ErrNotHeld)
		inner, nested := acquire(t, ctx, l, nil, "j")
		require.NoError(t, lock.Require(inner, "k", "j"))
		require.NoError(t, release(nested))
		require.ErrorIs(t, lock.Require(inner, "j"), lock.ErrLost, "its call has returned")

		away.Store(true)
		time.Sleep(ttl)
		require.ErrorIs(t, lock.Require(ctx, "k"), lock.ErrLost)
		require.ErrorIs(t, lock.Require(ctx), lock.ErrLost)
		require.ErrorIs(t, release(held), lock.ErrLost)
		require.ErrorIs(t, lock.Require(ctx, "k"), lock.ErrLost)
	})
}
