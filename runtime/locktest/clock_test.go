package locktest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// A lock that is renewed lasts however long, and one that is not renewed ends.
func TestAdvance(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l := e.Locker(nil)
		kept, held := acquire(t, l, policy, "kept")
		over, lost := acquire(t, l, fixed, "over")
		e.Advance(ttl * 9 / 10)
		require.NoError(t, lock.Check(over))
		e.Advance(ttl / 10)
		requireLost(t, over, lost)
		requireFree(t, e, "over")
		e.Advance(20 * ttl)
		require.NoError(t, lock.Check(kept))
		require.True(t, e.Held("kept"))
		require.NoError(t, release(held))
	})
}

// When a lease ends, a waiter of another process gets the lock.
func TestAdvanceWakesWaiters(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		ctx, held := acquire(t, e.Locker(nil), fixed, "k")
		second := e.Locker(nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, next, err := second.Acquire(t.Context(), policy, "k")
			if err != nil || ctx.Err() == nil {
				t.Error("two are inside at once", err)
			}
			next.Release(nil)
		})
		e.Advance(ttl)
		wg.Wait()
		requireLost(t, ctx, held)
	})
}

// A call that tries all the time also gets the lock only after the holder's context has ended.
func TestAdvanceTellsTheHolderFirst(t *testing.T) {
	e := locktest.New(t)
	first, second := e.Locker(nil), e.Locker(nil)
	for range 300 {
		ctx, held := acquire(t, first, fixed, "k")
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				_, next, err := second.Acquire(t.Context(), try, "k")
				if err != nil {
					continue
				}
				if ctx.Err() == nil {
					t.Error("two are inside at once")
				}
				next.Release(nil)
				return
			}
		})
		e.Advance(ttl)
		wg.Wait()
		requireLost(t, ctx, held)
	}
}

// renewals is an Observer that sends a value for each renewal.
type renewals chan struct{}

func (r renewals) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Renewed {
		r <- struct{}{}
	}
}

// The real clock continues to run between two moves of the virtual clock. A lease ends by it, and
// no sooner, and is renewed by it.
func TestRealTimeGoesOnToo(t *testing.T) {
	e := locktest.New(t)
	const left = 500 * time.Millisecond
	began := time.Now()
	ctx, held := acquire(t, e.Locker(nil), fixed, "k")
	e.Advance(time.Until(held.Deadline()) - left)
	<-ctx.Done()
	require.GreaterOrEqual(t, time.Since(began), left)
	require.Less(t, time.Since(began), ttl/6)
	requireLost(t, ctx, held)

	renewed := make(renewals, 10)
	const short = 4 * time.Second
	ctx, held = acquire(t, e.Locker(&lock.Options{Observer: renewed}), &lock.Policy{TTL: short}, "k2")
	latest := time.Now().Add(short) // the latest end of a lease that was not renewed
	for !held.Deadline().After(latest) {
		<-renewed
	}
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, release(held))
}

func TestDelayOfAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := locktest.New(t)
		l := e.Locker(nil)
		e.Delay(time.Second)
		began := time.Now()
		_, held := acquire(t, l, policy, "k")
		require.Equal(t, time.Second, time.Since(began))
		e.Heal()
		require.NoError(t, release(held))

		e.Delay(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, _, err := l.Acquire(ctx, policy, "k")
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		e.Heal()
		requireFree(t, e, "k")

		// The lease counts from before the request was sent.
		e.Delay(2 * ttl)
		_, _, err = l.Acquire(t.Context(), policy, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.ErrorContains(t, err, "a longer ttl")
	})
}

// A lock whose renewals are answered in time is kept, and another is lost.
func TestDelayOfRenewals(t *testing.T) {
	for _, tc := range []struct {
		delay time.Duration
		kept  bool
	}{
		{ttl / 2, true},
		{ttl, false},
	} {
		onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
			ctx, held := acquire(t, e.Locker(nil), policy, "k")
			e.Delay(tc.delay)
			e.Advance(ttl - ttl/20)
			require.NoError(t, lock.Check(ctx))
			e.Advance(10 * ttl)
			require.Equal(t, tc.kept, lock.Check(ctx) == nil)
			require.Equal(t, tc.kept, e.Held("k"))
			e.Heal()
			require.Equal(t, tc.kept, release(held) == nil)
		})
	}
}

// Outside of a bubble a delayed answer arrives when the clock is moved to its time.
func TestAdvanceBringsAnswers(t *testing.T) {
	e := locktest.New(t)
	l := e.Locker(nil)
	e.Delay(ttl / 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx, held, err := l.Acquire(t.Context(), policy, "k")
		if err != nil || lock.Check(ctx) != nil {
			t.Error(err, lock.Check(ctx))
		}
		e.Heal()
		held.Release(nil)
	})
	for !e.Held("k") {
		time.Sleep(time.Millisecond)
	}
	e.Advance(ttl / 4)
	e.Advance(ttl / 4)
	wg.Wait()
}

// All switches are used at once, for the race detector, and to see whether anything is left.
func TestAllAtOnce(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		lockers := []*lock.Locker{e.Locker(nil), e.Locker(nil)}
		ctx, cancel := context.WithCancel(t.Context())
		var tokens [4]sync.Map // of the sections of a key
		var sections atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					k := (i + n) % len(tokens)
					lockers[i%2].Do(ctx, policy, fmt.Sprint("k", k), func(ctx context.Context) error {
						// Lose and HeldByOther let a second holder in, with its own token.
						token, _ := lock.Token(ctx)
						if _, again := tokens[k].LoadOrStore(token, true); again || token == 0 {
							t.Errorf("two sections of k%d have the token %d", k, token)
						}
						sections.Add(1)
						time.Sleep(time.Millisecond)
						return lock.Check(ctx)
					})
					time.Sleep(100 * time.Microsecond) // otherwise time stands still in a bubble
				}
			})
		}
		const enough = 20
		for n := 0; n < 100 || n < 10_000 && sections.Load() <= enough; n++ {
			key := fmt.Sprint("k", n%4)
			switch n % 10 {
			case 0:
				e.Fail(nil)
			case 1, 6:
				e.Heal()
			case 2:
				e.LoseReplies(2)
			case 3:
				e.HeldByOther(key).Release()
			case 4:
				e.Delay(time.Millisecond)
			case 5:
				other := e.HeldByOther(key)
				e.Lose(key)
				other.Release()
			default:
				e.HeldByOther(key)
				e.Expire(key)
			}
			time.Sleep(time.Millisecond)
		}
		e.Heal()
		cancel()
		wg.Wait()
		require.Greater(t, sections.Load(), int64(enough))
	})
}

// To advance a hundred locks by sixty leases takes almost no time.
func TestAdvanceIsQuick(t *testing.T) {
	e := locktest.New(t)
	l := e.Locker(nil)
	var holds []*lock.Hold
	for i := range 100 {
		_, held := acquire(t, l, policy, fmt.Sprint("k", i))
		holds = append(holds, held)
	}
	began := time.Now()
	e.Advance(60 * ttl)
	require.Less(t, time.Since(began), ttl/6)
	for _, held := range holds {
		require.NoError(t, release(held))
	}
}
