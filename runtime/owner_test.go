package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// anyKey is a context key of another package.
type anyKey struct{}

// derived makes contexts that end with the context that they are made from.
var derived = map[string]func(ctx context.Context) (context.Context, func()){
	"itself": func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
	"value": func(ctx context.Context) (context.Context, func()) {
		return context.WithValue(ctx, anyKey{}, 1), func() {}
	},
	"cancel": func(ctx context.Context) (context.Context, func()) { c, f := context.WithCancel(ctx); return c, f },
	"deadline": func(ctx context.Context) (context.Context, func()) {
		c, f := context.WithTimeout(ctx, time.Hour)
		return c, f
	},
	"many": func(ctx context.Context) (context.Context, func()) {
		c, f := context.WithCancelCause(context.WithValue(ctx, anyKey{}, 1))
		c, g := context.WithTimeout(wrapped{c}, time.Hour)
		return context.WithValue(c, anyKey{}, 2), func() { g(); f(nil) }
	},
	"a struct around it": func(ctx context.Context) (context.Context, func()) { return wrapped{ctx}, func() {} },
	"another lock's": func(ctx context.Context) (context.Context, func()) {
		return ctx, func() {}
	},
}

// wrapped is a context of a web framework.
type wrapped struct{ context.Context }

// cutOff makes copies that do not end with the original.
var cutOff = map[string]func(ctx context.Context) (context.Context, func()){
	"itself":   func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
	"value":    derived["value"],
	"cancel":   derived["cancel"],
	"deadline": derived["deadline"],
	"many":     derived["many"],
}

// detached is a context of another package that passes on only the values.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

func TestDerivedContextsOwn(t *testing.T) {
	require.True(t, lock.KnowsCancelKey(), "package context has changed: see endsWith")
	for name, derive := range derived {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, newScripted(), nil)
				ctx, held := acquire(t, t.Context(), l, nil, "k")
				for range 3 { // from the hold, and from its re-entries
					child, stop := derive(ctx)
					defer stop()
					require.True(t, lock.Owns(child, "k"))
					require.Equal(t, tokenOf(t, ctx), tokenOf(t, child))
					inner, nested := acquire(t, child, l, &lock.Policy{Reentrant: true, Try: true}, "k")
					defer nested.Release(nil)
					ctx = inner
				}
				several, all, err := l.AcquireAll(ctx, requests("x", "y")...)
				require.NoError(t, err)
				child, stop := derive(several)
				defer stop()
				require.True(t, lock.Owns(child, "k"))
				require.True(t, lock.Owns(child, "x"))
				require.NoError(t, release(all))
				require.NoError(t, lock.Check(ctx))
				t.Cleanup(func() { held.Release(nil) })
			})
		})
	}
}

// P4, G8: a copy made by context.WithoutCancel, or in a similar way, would not end at a loss. So it
// owns nothing, and an acquire under it is a new one, even if the copy has a deadline of its own.
// Check still reports the state of the lock under which its code runs.
func TestContextCutOffOwnsNothing(t *testing.T) {
	for name, derive := range cutOff {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				l := newLocker(t, b, nil)
				outer, held := acquire(t, t.Context(), l, nil, "k")
				ctx, inner := acquire(t, outer, l, reentrant, "k")
				for i, from := range []context.Context{outer, ctx, outer, ctx} {
					before, stop := derive(from) // derived, then cut off, then derived again
					defer stop()
					cut := context.WithoutCancel(before)
					if i > 1 {
						cut = detached{before}
					}
					cut, stop = derive(cut)
					defer stop()
					require.False(t, lock.Owns(cut, "k"))
					_, ok := lock.Token(cut)
					require.False(t, ok)
					_, ok = lock.TokenOf(cut, "k")
					require.False(t, ok)
					require.NoError(t, lock.Check(cut))
					_, _, err := l.Acquire(cut, &lock.Policy{Reentrant: true, Try: true}, "k")
					requireOnly(t, lock.ErrNotAcquired, err)
					_, _, err = l.Acquire(cut, &lock.Policy{Wait: time.Second}, "k")
					requireOnly(t, lock.ErrNotAcquired, err)
				}
				cut := context.WithoutCancel(ctx)
				require.NoError(t, release(inner))
				require.NoError(t, release(held))
				requireOnly(t, lock.ErrLost, lock.Check(cut))
				own, fresh := acquire(t, cut, l, reentrant, "k")
				require.EqualValues(t, 2, b.acquires.Load())
				require.NoError(t, lock.Check(own))
				require.NoError(t, release(fresh))
			})
		})
	}
}

// P3: a context that is kept after its call has returned owns nothing. It has ended, so nothing is
// acquired under it. Under the context of a re-entry, an acquire is a new one.
func TestContextKeptPastTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		kept, inner := acquire(t, outer, l, reentrant, "k")
		require.NoError(t, release(inner))
		require.False(t, lock.Owns(kept, "k"))
		requireOnly(t, lock.ErrLost, lock.Check(kept))
		_, _, err := l.Acquire(kept, &lock.Policy{Reentrant: true, Try: true}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		require.NoError(t, release(held))

		for _, ctx := range []context.Context{outer, kept} {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.False(t, lock.Owns(ctx, "k"))
			requireOnly(t, lock.ErrLost, lock.Check(ctx))
			_, _, err := l.Acquire(ctx, reentrant, "k")
			requireOnly(t, lock.ErrNotAcquired, err)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.EqualValues(t, 1, b.acquires.Load())
	})
}

// Detach removes ownership and nothing else.
func TestDetach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type userKey struct{}
		l := newLocker(t, newScripted(), nil)
		ctx, held := acquire(t, context.WithValue(t.Context(), userKey{}, "ann"), l, nil, "k")
		detached := lock.Detach(ctx)
		require.Equal(t, "ann", detached.Value(userKey{}))
		require.False(t, lock.Owns(detached, "k"))
		_, ok := lock.Token(detached)
		require.False(t, ok)
		_, _, err := l.Acquire(detached, &lock.Policy{Reentrant: true, Try: true}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		own, fresh := acquire(t, detached, l, nil, "other")
		require.True(t, lock.Owns(own, "other"))
		require.False(t, lock.Owns(own, "k"))
		require.NoError(t, release(fresh))
		require.NoError(t, release(held))
		require.NoError(t, lock.Check(detached))
		require.ErrorIs(t, detached.Err(), context.Canceled)
		require.NotPanics(t, func() { lock.Detach(context.Background()) })
	})
}

// Check covers every lock of the chain, of all Lockers.
func TestCheckCoversTheChain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		silent := newScripted()
		silent.onRenew = hang
		first, second := newLocker(t, silent, nil), newLocker(t, newScripted(), nil)
		outer, a := acquire(t, t.Context(), first, renewed, "a")
		ctx, b := acquire(t, outer, second, renewed, "b")
		ctx, c := acquire(t, ctx, second, renewed, "c")
		require.NoError(t, lock.Check(ctx))
		time.Sleep(ttl)
		synctest.Wait()
		err := lock.Check(ctx)
		requireOnly(t, lock.ErrLost, err)
		require.ErrorContains(t, err, "check a (Shop.Buy)")
		require.True(t, lock.Owns(ctx, "b"), "b itself is held")
		require.False(t, lock.Owns(ctx, "a"))
		require.NoError(t, release(c))
		require.NoError(t, release(b))
		require.ErrorIs(t, release(a), lock.ErrLost)
		require.NoError(t, lock.Check(t.Context()))
	})
}
