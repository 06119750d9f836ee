package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestHoldMethods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return driver.ErrLost }
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 30 * time.Second}, "k")
		require.Equal(t, ctx, held.Context())
		require.Equal(t, "k", held.Key())
		require.Equal(t, tokenOf(t, ctx), held.Token())
		require.Equal(t, 30*time.Second-lock.Margin(30*time.Second), time.Until(held.Deadline()))
		<-ctx.Done()
		require.True(t, held.Deadline().Before(time.Now()), "it was lost")
		requireOnly(t, lock.ErrLost, held.Unlock())
		require.NoError(t, held.Unlock(), "a second call does nothing")
		require.NoError(t, (*lock.Hold)(nil).Unlock())
	})
}

func TestHoldMethodsOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		ctx, held, err := l.AcquireAll(t.Context(),
			lock.Request{Key: "a", Policy: &lock.Policy{TTL: time.Minute}},
			lock.Request{Key: "b", Policy: &lock.Policy{TTL: time.Second}},
			lock.Request{Key: "c", Policy: &lock.Policy{TTL: time.Minute}})
		require.NoError(t, err)
		require.Equal(t, ctx, held.Context())
		require.Empty(t, held.Key())
		require.Zero(t, held.Token())
		require.Equal(t, time.Second-lock.Margin(time.Second), time.Until(held.Deadline()), "the first of the three")
		require.NoError(t, held.Unlock())
	})
}

func TestOwnsAtABackend(t *testing.T) {
	l := newLocker(t, memlock.New(), &lock.Options{Backends: map[string]lock.Backend{"eu": memlock.New(), "us": memlock.New()}})
	outer, first := acquire(t, t.Context(), l, &lock.Policy{Backend: "eu"}, "k")
	inner, second := acquire(t, outer, l, nil, "k")
	require.True(t, lock.Owns(inner, "k"))
	require.True(t, lock.Owns(inner, "k", "eu"))
	require.True(t, lock.Owns(inner, "k", ""))
	require.False(t, lock.Owns(inner, "k", "us"))
	require.False(t, lock.Owns(outer, "k", ""))
	token, ok := lock.TokenOf(inner, "k", "eu")
	require.True(t, ok)
	require.Equal(t, tokenOf(t, outer), token)
	token, ok = lock.TokenOf(inner, "k")
	require.True(t, ok)
	require.Equal(t, second.Token(), token)
	_, ok = lock.TokenOf(inner, "k", "us")
	require.False(t, ok)
	require.NoError(t, second.Unlock())
	require.NoError(t, first.Unlock())
}

// A server that stalls once for longer than the ttl costs a waiter only time. If it always stalls
// so long, the ttl is too short, and the call fails.
func TestLateGrantIsAskedForAgain(t *testing.T) {
	for late, attempts := range map[int]int64{1: 2, 3: 4, 100: 4} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				left := late
				b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					lease, err := do()
					if left > 0 {
						left--
						time.Sleep(3 * time.Second)
					}
					return lease, err
				}
				l := newLocker(t, b, nil)
				_, held, err := l.Acquire(t.Context(), &lock.Policy{TTL: 2 * time.Second}, "k")
				require.Equal(t, attempts, b.acquires.Load())
				if late == 100 {
					requireOnly(t, lock.ErrNotAcquired, err)
					return
				}
				require.NoError(t, err)
				require.NoError(t, held.Unlock())
			})
		})
	}
}

// A Try, or a call whose wait is over, does not ask again.
func TestLateGrantOfATry(t *testing.T) {
	for name, p := range map[string]*lock.Policy{
		"try":  {TTL: 2 * time.Second, Try: true},
		"wait": {TTL: 2 * time.Second, Wait: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					lease, err := do()
					time.Sleep(3 * time.Second)
					return lease, err
				}
				_, _, err := newLocker(t, b, nil).Acquire(t.Context(), p, "k")
				requireOnly(t, lock.ErrNotAcquired, err)
				require.EqualValues(t, 1, b.acquires.Load())
			})
		})
	}
}

// S22: the end of the wait interrupts an attempt at an engine that answered the attempt before. The
// error says only that another process holds the key.
func TestWaitEndsInTheMiddleOfAnAttempt(t *testing.T) {
	for name, cut := range map[string]error{
		"not sent":  fmt.Errorf("not sent: %w", context.DeadlineExceeded),
		"no answer": fmt.Errorf("%w: %w", driver.ErrIndeterminate, context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(ctx context.Context, a *driver.Acquisition, _ func() (driver.Lease, error)) (driver.Lease, error) {
					if b.acquires.Load() < 3 {
						return nil, &driver.HeldError{RetryAfter: time.Second}
					}
					<-ctx.Done()
					a.MayHaveRun = errors.Is(cut, driver.ErrIndeterminate)
					return nil, cut
				}
				l := newLocker(t, b, nil)
				_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 1500 * time.Millisecond}, "k")
				requireOnly(t, lock.ErrNotAcquired, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's own context has not ended")
				require.Eventually(t, func() bool { return b.undos.Load() == 1 }, time.Second, time.Millisecond)
			})
		})
	}
}
