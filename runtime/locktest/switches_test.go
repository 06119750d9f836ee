package locktest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestExpire(t *testing.T) {
	for _, p := range []*lock.Policy{policy, fixed} {
		onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
			l := e.Locker(nil)
			ctx, held := acquire(t, l, p, "k")
			other, kept := acquire(t, l, p, "other")
			require.True(t, e.Held("k"))
			e.Expire("k")
			require.Error(t, ctx.Err(), "the context must have ended when Expire returns")
			require.False(t, e.Held("k"))
			next, second := acquire(t, e.Locker(nil), try, "k")
			requireLost(t, ctx, held)
			require.NoError(t, lock.Check(next), "the late release freed another's")
			require.NoError(t, release(second))
			require.NoError(t, lock.Check(other))
			require.NoError(t, release(kept))
		})
	}
}

// No other call is inside before the context of the lost hold has ended.
func TestExpireTellsTheHolderFirst(t *testing.T) {
	e := locktest.New(t)
	first, second := e.Locker(nil), e.Locker(nil)
	for range 50 {
		ctx, held := acquire(t, first, policy, "k")
		var wg sync.WaitGroup
		wg.Go(func() {
			_, next, err := second.Acquire(t.Context(), policy, "k")
			if err != nil || ctx.Err() == nil {
				t.Error("two are inside at once", err)
			}
			next.Release(nil)
		})
		e.Expire("k")
		wg.Wait()
		require.ErrorIs(t, release(held), lock.ErrLost)
	}
}

// Expire is called in the middle of the method, on its own goroutine.
func TestExpireInsideTheMethod(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		soldOut := errors.New("sold out")
		err := e.Locker(nil).Do(t.Context(), policy, "k", func(ctx context.Context) error {
			e.Expire("k")
			require.Error(t, ctx.Err())
			return soldOut
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, soldOut)
	})
}

func TestLose(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		ctx, held := acquire(t, e.Locker(nil), policy, "k")
		e.Lose("k")
		require.False(t, e.Held("k"))
		require.NoError(t, lock.Check(ctx), "the holder has not been told yet")
		requireFree(t, e, "k")
		e.Advance(ttl/3 - ttl/60)
		require.NoError(t, lock.Check(ctx))
		e.Advance(ttl / 60)
		requireLost(t, ctx, held)
	})
}

// The release is the first request that shows the loss.
func TestLoseBeforeTheRelease(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		_, held := acquire(t, e.Locker(nil), policy, "k")
		e.Lose("k")
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

func TestHeldByOther(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l := e.Locker(nil)
		other := e.HeldByOther("k")
		_, _, err := l.Acquire(t.Context(), try, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		e.Advance(100 * ttl)
		require.True(t, e.Held("k"), "held until it is released")

		got := make(chan uint64)
		go func() {
			ctx, held := acquire(t, l, policy, "k")
			token, _ := lock.Token(ctx)
			held.Release(nil)
			got <- token
		}()
		other.Release()
		require.Greater(t, <-got, other.Token)
		_, held := acquire(t, l, policy, "k")
		other.Release()
		require.True(t, e.Held("k"), "released twice")
		require.NoError(t, release(held))
	})
}

// Two calls are inside, and the token of the one that does not know of the other is lower.
func TestHeldByOtherTakesAHeldLock(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		ctx, held := acquire(t, e.Locker(nil), policy, "k")
		mine, _ := lock.Token(ctx)
		other := e.HeldByOther("k")
		require.Greater(t, other.Token, mine)
		require.NoError(t, lock.Check(ctx))
		again := e.HeldByOther("k")
		require.Greater(t, again.Token, other.Token)
		other.Release()
		require.True(t, e.Held("k"), "it is no longer the holder's to release")
		e.Advance(ttl / 3)
		requireLost(t, ctx, held)
		again.Release()
		next, held := acquire(t, e.Locker(nil), policy, "k")
		token, _ := lock.Token(next)
		require.Greater(t, token, again.Token)
		require.NoError(t, release(held))
	})
}

// A lease that the process keeps without using it is recalled for the other, as if the other waited
// for it.
func TestHeldByOtherRecallsAStickyLease(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l, p := e.Locker(nil), &lock.Policy{Sticky: time.Minute, Try: true}
		_, held := acquire(t, l, p, "k")
		require.NoError(t, release(held))
		other := e.HeldByOther("k")
		_, _, err := l.Acquire(t.Context(), p, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		other.Release()
		ctx, held := acquire(t, l, &lock.Policy{Sticky: time.Minute}, "k")
		token, _ := lock.Token(ctx)
		require.Greater(t, token, other.Token)
		require.NoError(t, release(held))
	})
}

// HeldByOther can take a key that is kept for a waiter.
func TestHeldByOtherWhileOthersWait(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l := e.Locker(nil)
		first := e.HeldByOther("k")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, held := acquire(t, l, policy, "k")
				held.Release(nil)
			})
		}
		first.Release()
		e.HeldByOther("k").Release()
		wg.Wait()
		requireFree(t, e, "k")
	})
}

// Expire ends the lease of another process that has died.
func TestExpireOfAnother(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		other := e.HeldByOther("k")
		e.Expire("k")
		requireFree(t, e, "k")
		other.Release()
	})
}

func TestLoseReplies(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l := e.Locker(nil)
		e.LoseReplies(2)
		for range 2 {
			_, _, err := l.Acquire(t.Context(), policy, "k")
			require.ErrorIs(t, err, lock.ErrIndeterminate)
		}
		requireFree(t, e, "k")
		e.LoseReplies(5)
		e.Heal()
		requireFree(t, e, "k")
	})
}

// A lock that can't be undone yet stays held, and is undone when the engine is back.
func TestLoseRepliesOfAnEngineThatThenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := locktest.New(t)
		e.LoseReplies(1)
		_, _, err := func() (context.Context, *lock.Hold, error) {
			defer e.Fail(nil)
			return e.Locker(nil).Acquire(t.Context(), policy, "k")
		}()
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		e.Advance(ttl / 2)
		e.Heal()
		e.Advance(time.Second)
		require.False(t, e.Held("k"))
	})
}

func TestFail(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		l := e.Locker(nil)
		ctx, held := acquire(t, l, policy, "k")
		down := errors.New("no route to host")
		e.Fail(down)
		_, _, err := l.Acquire(t.Context(), policy, "another")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorIs(t, err, down)
		e.Advance(ttl * 9 / 10)
		require.NoError(t, lock.Check(ctx), "the lease is not over")
		e.Advance(ttl / 10)
		requireLost(t, ctx, held)
		e.Heal()
		requireFree(t, e, "k")
	})
}

// A lock survives a failure that is shorter than its lease.
func TestHeal(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		ctx, held := acquire(t, e.Locker(nil), policy, "k")
		for range 5 {
			e.Fail(nil)
			e.Advance(ttl / 2)
			e.Heal()
			e.Advance(ttl / 3)
			require.NoError(t, lock.Check(ctx))
		}
		require.NoError(t, release(held))
	})
}

func TestFailKeepsTheKindOfItsError(t *testing.T) {
	e := locktest.New(t)
	for _, kind := range []error{lock.ErrConflict, lock.ErrIndeterminate} {
		e.Fail(kind)
		_, _, err := e.Locker(nil).Acquire(t.Context(), policy, "k")
		require.ErrorIs(t, err, kind)
	}
}

// A release that fails is not reported as an error of the method, and is repeated.
func TestFailOfARelease(t *testing.T) {
	onBothClocks(t, func(t *testing.T, e *locktest.Engine) {
		_, held := acquire(t, e.Locker(nil), policy, "k")
		e.Fail(nil)
		require.NoError(t, release(held))
		require.True(t, e.Held("k"))
		e.Heal()
		requireFree(t, e, "k")
	})
}

func TestMistakes(t *testing.T) {
	r := &recorder{TB: t}
	e := locktest.New(r)
	other := e.HeldByOther("shop:1")
	e.Expire("shop:2")
	e.Lose("shop:3")
	require.Equal(t, `locktest: Expire("shop:2"): nobody holds this lock; what is held: ["shop:1"]
locktest: Lose("shop:3"): nobody holds this lock; what is held: ["shop:1"]`, r.String())
	require.PanicsWithValue(t, `locktest: Expire("k"): nobody holds this lock; what is held: []`, func() {
		locktest.New(nil).Expire("k")
	})
	other.Release()

	e = locktest.New(nil)
	l := e.Locker(nil)
	_, held, err := l.Acquire(t.Context(), &lock.Policy{Fair: true}, "k")
	require.NoError(t, err)
	require.PanicsWithValue(t, `locktest: HeldByOther("k"): the key has a lock that is no mutex; have a second Locker of the Engine take it`, func() {
		e.HeldByOther("k")
	})
	require.NoError(t, held.Unlock())
	require.NoError(t, l.Close(t.Context()))
}

// The end of a test heals the engine and closes its Lockers. A hold that a method still has then is
// an error.
func TestEndOfTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		e := locktest.New(r)
		_, held := acquire(t, e.Locker(nil), policy, "k")
		e.Fail(nil)
		require.NoError(t, release(held))
		began := time.Now()
		r.end()
		require.Empty(t, r.errors)
		require.Less(t, time.Since(began), time.Second)

		ctx, _ := acquire(t, e.Locker(nil), policy, "k")
		r.end()
		require.Contains(t, r.String(), "1 lock was still held")
		require.Error(t, ctx.Err())
	})
}
