package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

type userKey struct{}

// Calls that wait share sections of limited size, in their order. Each call has its own result or
// error. The calls of a section have the values of the first call's context, and one token.
func TestMergerSharesSections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer func() { _ = l.Close(t.Context()) }()
		m := lock.NewMerger[int, string](l, &lock.Policy{}, 4)
		var sections [][]int
		batch := func(ctx context.Context, reqs []int) ([]string, error) {
			require.Equal(t, reqs[0], ctx.Value(userKey{}))
			require.True(t, lock.Owns(ctx, "k"))
			time.Sleep(time.Millisecond)
			sections = append(sections, reqs)
			results, each := make([]string, len(reqs)), make(lock.EachError, len(reqs))
			for i, n := range reqs {
				if results[i] = strconv.Itoa(n); n == 5 {
					each[i] = errors.New("not five")
				}
			}
			return results, each
		}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				got, err := m.Do(context.WithValue(t.Context(), userKey{}, i), "k", i, batch)
				require.Equal(t, strconv.Itoa(i), got)
				if i == 5 {
					require.EqualError(t, err, "not five")
				} else {
					require.NoError(t, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}, {5, 6, 7, 8}, {9}}, sections)
	})
}

// A call that gives up before the section begins is not part of it. A call that gives up later
// still has its result in the section. A section that nobody waits for any more ends.
func TestMergerCallersThatGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer func() { _ = l.Close(t.Context()) }()
		m := lock.NewMerger[int, int](l, &lock.Policy{Wait: time.Minute}, 10)
		_, held, err := l.Acquire(t.Context(), nil, "k")
		require.NoError(t, err)
		var sections [][]int
		batch := func(ctx context.Context, reqs []int) ([]int, error) {
			sections = append(sections, reqs)
			<-ctx.Done()
			return reqs, nil
		}
		do := func(ctx context.Context, n int) <-chan error {
			done := make(chan error, 1)
			go func() { _, err := m.Do(ctx, "k", n, batch); done <- err }()
			synctest.Wait()
			return done
		}
		gone, cancelGone := context.WithCancel(t.Context())
		left := do(gone, 1)
		cancelGone()
		require.ErrorIs(t, <-left, lock.ErrNotAcquired) // the only call so far
		late := do(t.Context(), 2)
		require.ErrorIs(t, <-late, lock.ErrNotAcquired) // after a minute
		inside, cancelInside := context.WithCancel(t.Context())
		first, second := do(inside, 3), do(inside, 4)
		held.Release(nil)
		synctest.Wait()
		require.Empty(t, first)
		cancelInside()
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.Equal(t, [][]int{{3, 4}}, sections)
	})
}

// A call that is cancelled before the section begins is not part of it, even if the section begins
// before the call's goroutine runs again. The other calls have their results.
func TestMergerCallerCancelledJustBeforeTheSection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer func() { _ = l.Close(t.Context()) }()
		m := lock.NewMerger[int, int](l, &lock.Policy{}, 10)
		for range 100 {
			_, held, err := l.Acquire(t.Context(), nil, "k")
			require.NoError(t, err)
			var sections [][]int
			batch := func(_ context.Context, reqs []int) ([]int, error) {
				sections = append(sections, reqs)
				return reqs, nil
			}
			gone, cancel := context.WithCancel(t.Context())
			left, served := make(chan error, 1), make(chan error, 1)
			go func() { _, err := m.Do(gone, "k", 1, batch); left <- err }()
			go func() { _, err := m.Do(t.Context(), "k", 2, batch); served <- err }()
			synctest.Wait()
			cancel()
			held.Release(nil)
			err = <-left
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, <-served)
			require.Equal(t, [][]int{{2}}, sections)
		}
	})
}

// The only waiting call gives up at the moment of the grant, and another call comes. That call gets
// a section of its own, whose context has not ended with that of the first call.
func TestMergerCallerGoesAtTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		var m *lock.Merger[int, int]
		first, second := make(chan error, 1), make(chan error, 1)
		do := func(ctx context.Context, n int, done chan<- error) {
			_, err := m.Do(ctx, "k", n, func(ctx context.Context, reqs []int) ([]int, error) { return reqs, ctx.Err() })
			done <- err
		}
		var once sync.Once
		l := lock.New(memlock.New(), &lock.Options{Observer: observerFunc(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.Acquired {
				once.Do(func() {
					cancel()
					require.ErrorIs(t, <-first, lock.ErrNotAcquired)
					go do(t.Context(), 2, second)
					time.Sleep(time.Millisecond)
				})
			}
		})})
		defer func() { _ = l.Close(t.Context()) }()
		m = lock.NewMerger[int, int](l, &lock.Policy{}, 10)
		go do(gone, 1, first)
		require.NoError(t, <-second)
	})
}

func TestMergerFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := locktest.New(t)
		l := engine.Locker(nil)
		m := lock.NewMerger[int, int](l, &lock.Policy{TTL: time.Minute}, 10)
		do := func(batch func(ctx context.Context, reqs []int) ([]int, error)) error {
			_, err := m.Do(t.Context(), "k", 1, batch)
			return err
		}
		var panicked *lock.PanicError
		require.ErrorAs(t, do(func(context.Context, []int) ([]int, error) { panic("no") }), &panicked)
		require.Equal(t, "no", panicked.Value)
		require.Contains(t, string(panicked.Stack), "TestMergerFailures")
		require.ErrorAs(t, do(func(context.Context, []int) ([]int, error) { runtime.Goexit(); return nil, nil }), &panicked)
		require.ErrorContains(t, do(func(context.Context, []int) ([]int, error) { return nil, nil }), "0 results for 1 requests")
		require.ErrorContains(t, do(func(context.Context, []int) ([]int, error) { return nil, lock.EachError{} }), "0 errors for 1 requests")
		failed := errors.New("it failed")
		err := do(func(ctx context.Context, reqs []int) ([]int, error) {
			engine.Expire("k")
			<-ctx.Done()
			return reqs, fmt.Errorf("wrapped: %w", failed)
		})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, lock.ErrLost)
		err = do(func(ctx context.Context, _ []int) ([]int, error) {
			_, err := m.Do(ctx, "k", 2, nil)
			return nil, err
		})
		require.ErrorIs(t, err, lock.ErrDeadlock)
		engine.Fail(errors.New("away"))
		require.ErrorIs(t, do(nil), lock.ErrUnavailable)
		engine.Heal()
		require.Panics(t, func() { lock.NewMerger[int, int](l, &lock.Policy{}, 1) })
	})
}

// A Merger refuses policies that its directive excludes.
func TestMergerPolicies(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	for _, p := range []lock.Policy{{Read: true}, {Permits: 2}, {Once: true}, {Leader: true}, {Try: true}, {Reentrant: true}, {Skip: true}} {
		_, err := lock.NewMerger[int, int](l, &p, 10).Do(t.Context(), "k", 1, func(_ context.Context, reqs []int) ([]int, error) { return reqs, nil })
		require.ErrorIs(t, err, lock.ErrInvalid, "%+v", p)
		require.ErrorContains(t, err, "a Merger's policy")
	}
}

func TestMergerShedsLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer func() { _ = l.Close(t.Context()) }()
		m := lock.NewMerger[int, int](l, &lock.Policy{Queue: 2}, 10)
		_, held, err := l.Acquire(t.Context(), nil, "k")
		require.NoError(t, err)
		batch := func(_ context.Context, reqs []int) ([]int, error) { return reqs, nil }
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				_, err := m.Do(t.Context(), "k", i, batch)
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		_, err = m.Do(t.Context(), "k", 3, batch)
		require.ErrorIs(t, err, lock.ErrBusy)
		held.Release(nil)
		all.Wait()
	})
}
