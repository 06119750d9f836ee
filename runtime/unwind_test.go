package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S95, P16, G12: a panic or runtime.Goexit releases the locks, nested ones too, and continues
// unchanged.
func TestPanicAndGoexitRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		nested := func(f func()) {
			l.Do(t.Context(), nil, "k", func(ctx context.Context) error {
				return l.Do(ctx, reentrant, "k", func(ctx context.Context) error {
					_, held, err := l.AcquireAll(ctx, requests("a", "b")...)
					defer held.Release(&err)
					f()
					return err
				})
			})
		}
		value := errors.New("boom")
		require.PanicsWithValue(t, value, func() { nested(func() { panic(value) }) })

		done, returned := make(chan struct{}), false
		go func() {
			defer close(done)
			nested(runtime.Goexit)
			returned = true
		}()
		<-done
		require.False(t, returned)
		require.EqualValues(t, 6, b.releases.Load())
		require.Zero(t, l.Entries())
	})
}

// P16: a panic that a caller recovers from ends only the inner frame.
func TestRecoveredPanicInAReentry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		require.NoError(t, l.Do(t.Context(), nil, "k", func(ctx context.Context) error {
			require.Panics(t, func() {
				l.Do(ctx, reentrant, "k", func(context.Context) error { panic("boom") })
			})
			require.NoError(t, lock.Check(ctx))
			return l.Do(ctx, &lock.Policy{Reentrant: true, Try: true}, "k", func(ctx context.Context) error { return lock.Check(ctx) })
		}))
	})
}
