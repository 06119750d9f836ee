package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// P1, S100: goroutines that share a context re-enter one after the other, in the order in which
// they came. No two are inside at once.
func TestSiblingsQueueAsForAMutex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		inside := &exclusion{t: t}
		var served []int
		concurrently(50, func(i int) {
			time.Sleep(time.Duration(i) * time.Microsecond)
			// Each goroutine has a context of its own, like the children of an errgroup.
			child, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			require.NoError(t, l.Do(child, reentrant, "k", func(ctx context.Context) error {
				inside.run(func() {
					served = append(served, i)
					time.Sleep(time.Millisecond)
				})
				// P14: a nested re-entry does not queue behind the siblings.
				return l.Do(ctx, reentrant, "k", func(ctx context.Context) error { return lock.Check(ctx) })
			}))
		})
		require.IsIncreasing(t, served)
		require.Len(t, served, 50)
		require.EqualValues(t, 1, b.acquires.Load())
		require.NoError(t, release(held))
	})
}

// Try, wait and cancel mean for a sibling what they mean for any other call.
func TestSiblingsThatDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		_, sibling := acquire(t, ctx, l, reentrant, "k")

		began := time.Now()
		_, _, err := l.Acquire(ctx, &lock.Policy{Reentrant: true, Try: true}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		_, _, err = l.Acquire(ctx, &lock.Policy{Reentrant: true, Wait: 3 * time.Second}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		require.Equal(t, 3*time.Second, time.Since(began))
		child, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, _, err = l.Acquire(child, reentrant, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(began))

		require.NoError(t, release(sibling))
		_, sibling = acquire(t, ctx, l, &lock.Policy{Reentrant: true, Try: true}, "k")
		require.NoError(t, release(sibling))
		require.NoError(t, release(held))
	})
}

// If the turn comes as a sibling gives up, the turn is passed on.
func TestSiblingsTurnRacesWithCancel(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T) {
			l := newLocker(t, newScripted(), nil)
			ctx, held := acquire(t, t.Context(), l, renewed, "k")
			concurrently(8, func(i int) {
				child, cancel := context.WithTimeout(ctx, time.Duration(1+i/2)*time.Millisecond)
				defer cancel()
				if _, inner, err := l.Acquire(child, reentrant, "k"); err == nil {
					time.Sleep(time.Millisecond)
					inner.Release(nil)
				}
			})
			_, inner := acquire(t, ctx, l, &lock.Policy{Reentrant: true, Try: true}, "k")
			require.NoError(t, release(inner))
			require.NoError(t, release(held))
		})
	}
}

// A sibling that waits when the hold is lost gets ErrLost.
func TestLossWakesSiblings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		_, sibling := acquire(t, ctx, l, reentrant, "k")
		_, _, err := l.Acquire(ctx, reentrant, "k")
		requireOnly(t, lock.ErrLost, err)
		require.ErrorIs(t, release(sibling), lock.ErrLost)
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

// P2: goroutines that outlive the method. Its context is cancelled, Check returns ErrLost, and a
// nested method that returns later returns ErrLost, never nil.
func TestChildrenThatOutliveTheMethod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		var child sync.WaitGroup
		var inner error
		require.NoError(t, l.Do(t.Context(), renewed, "k", func(ctx context.Context) error {
			child.Go(func() {
				inner = l.Do(ctx, reentrant, "k", func(nested context.Context) error {
					<-nested.Done()
					requireOnly(t, lock.ErrLost, lock.Check(nested))
					requireOnly(t, lock.ErrLost, lock.Check(ctx))
					require.False(t, lock.Owns(nested, "k"))
					_, ok := lock.Token(nested)
					require.False(t, ok)
					_, ok = lock.TokenOf(nested, "k")
					require.False(t, ok)
					return nil
				})
			})
			synctest.Wait()
			return nil
		}))
		// The release does not wait for them.
		_, held := acquire(t, t.Context(), l, &lock.Policy{Try: true}, "k")
		child.Wait()
		requireOnly(t, lock.ErrLost, inner)
		require.NoError(t, release(held))
	})
}

// A nested method returned while its own goroutine is still inside. What follows runs next to that
// goroutine, whose calls get ErrLost.
func TestChildrenThatOutliveAReentry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		outer, held := acquire(t, t.Context(), l, renewed, "k")
		middle, second := acquire(t, outer, l, reentrant, "k")
		nested, third := acquire(t, middle, l, reentrant, "k")
		require.NoError(t, release(second))
		requireOnly(t, lock.ErrLost, lock.Check(nested))
		require.False(t, lock.Owns(nested, "k"))
		// A call of that goroutine is no longer part of the chain: it queues like any other call.
		_, _, err := l.Acquire(nested, &lock.Policy{Reentrant: true, Try: true}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		own := errors.New("own")
		third.Release(&own)
		require.ErrorIs(t, own, lock.ErrLost)
		require.ErrorContains(t, own, "own")
		require.NoError(t, lock.Check(outer))
		require.NoError(t, release(held))
	})
}
