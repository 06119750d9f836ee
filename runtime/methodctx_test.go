package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// The method's context keeps the promises of context.Context: the first reason to end stays its
// cause, whoever asks first, and at any time.
func TestMethodContextEndsOnce(t *testing.T) {
	type user struct{}
	const deadline = time.Second
	for name, tc := range map[string]struct {
		asked    bool          // whether Done was called before anything ended
		release  time.Duration // when the release comes; the caller's context ends after a second
		err      error
		released bool // whether the release is the cause
	}{
		"caller's first":        {false, 2 * time.Second, context.DeadlineExceeded, false},
		"caller's first, asked": {true, 2 * time.Second, context.DeadlineExceeded, false},
		"release first":         {false, 0, context.Canceled, true},
		"release first, asked":  {true, 0, context.Canceled, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, newScripted(), nil)
				caller, cancel := context.WithTimeout(context.WithValue(t.Context(), user{}, "ann"), deadline)
				defer cancel()
				for _, several := range []bool{false, true} {
					reqs := requests("a")
					if several {
						reqs = requests("a", "b")
						caller, cancel = context.WithTimeout(context.WithValue(t.Context(), user{}, "ann"), deadline)
						defer cancel()
					}
					ctx, held, err := l.AcquireAll(caller, reqs...)
					require.NoError(t, err)
					until, ok := ctx.Deadline()
					require.True(t, ok)
					require.Equal(t, deadline, time.Until(until))
					if tc.asked {
						require.NotNil(t, ctx.Done())
					}
					require.NoError(t, ctx.Err())
					time.Sleep(tc.release)
					if !tc.released {
						require.ErrorIs(t, ctx.Err(), tc.err)
					}
					require.NoError(t, release(held))
					for range 2 { // before the caller's context has ended too, and after
						require.ErrorIs(t, ctx.Err(), tc.err)
						<-ctx.Done()
						require.ErrorIs(t, ctx.Err(), tc.err)
						cause := context.Cause(ctx)
						if tc.released {
							require.EqualError(t, cause, "the locked method has returned")
						} else {
							require.Equal(t, tc.err, cause)
						}
						require.Equal(t, "ann", ctx.Value(user{}))
						time.Sleep(2 * time.Second)
					}
				}
			})
		})
	}
}

// The same if the context is first asked when both events have happened.
func TestMethodContextIsAskedLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx, held := acquire(t, caller, l, nil, "k")
		require.NoError(t, release(held))
		time.Sleep(2 * time.Second)
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorContains(t, context.Cause(ctx), "has returned")
	})
}

// A derived context ends with the method's context, at once and without a goroutine.
func TestMethodContextEndsWhatIsDerived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		synctest.Wait()
		before := goroutines()
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		called := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { close(called) })
		defer stop()
		require.Equal(t, before, goroutines())
		require.NoError(t, release(held))
		require.ErrorIs(t, child.Err(), context.Canceled)
		<-called
		require.Equal(t, context.Cause(ctx), context.Cause(child))
		require.NoError(t, lock.Check(t.Context()))
	})
}
