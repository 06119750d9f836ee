package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

const ttl = 10 * time.Second

var renewed = &lock.Policy{Method: "Shop.Buy", TTL: ttl}

// requireLost requires that ctx has ended because its lock was lost, and that each function that
// reports on the lock says so.
func requireLost(t *testing.T, ctx context.Context, l *lock.Locker, key string) {
	t.Helper()
	requireOnly(t, lock.ErrLost, lock.Check(ctx))
	require.False(t, lock.Owns(ctx, key))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	requireOnly(t, lock.ErrLost, context.Cause(ctx))
	// P6, G8: a re-entry of a lost lock, or any acquire under its context, returns ErrLost. "Not
	// acquired" would run a fallback.
	for _, k := range []string{key, "another"} {
		_, held, err := l.Acquire(ctx, &lock.Policy{Reentrant: true}, k)
		require.Nil(t, held)
		requireOnly(t, lock.ErrLost, err)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// S31, S54: the answer "not the owner" is final: the context ends at once, and no renewal follows.
func TestLostWhenTheEngineSaysNotTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		<-ctx.Done()
		require.InDelta(t, ttl/3, time.Since(began), float64(time.Millisecond))
		requireLost(t, ctx, l, "k")
		time.Sleep(3 * ttl)
		require.EqualValues(t, 1, b.renewals.Load())
		requireOnly(t, lock.ErrLost, release(held))
		time.Sleep(ttl)
		require.Zero(t, b.releases.Load(), "what is not ours is not released")
	})
}

// S33, S55, G2: if the engine does not answer, the context ends before the lease can end at the
// engine. The lease counts from before the acquire was sent.
func TestSilenceEndsTheContextBeforeTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const rtt = time.Second
		b := newScripted()
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			defer time.Sleep(rtt)
			return do()
		}
		b.onRenew = hang
		l := newLocker(t, b, nil)
		sent := time.Now()
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		end := sent.Add(ttl - lock.Margin(ttl))

		time.Sleep(time.Until(end) - 1)
		require.NoError(t, lock.Check(ctx))
		require.True(t, lock.Owns(ctx, "k"))
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		// Check says so at this very instant, whether or not a timer has fired.
		requireOnly(t, lock.ErrLost, lock.Check(ctx))
		require.False(t, lock.Owns(ctx, "k"))
		<-ctx.Done()
		require.Equal(t, end, time.Now())
		requireLost(t, ctx, l, "k")
		require.Greater(t, b.renewals.Load(), int64(2), "a third of the lease is not enough to give up")
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// S53: failed renewals are repeated until the deadline, and one success is enough.
func TestFailedRenewalsAreRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		last := time.Now()
		b.onRenew = func(_ context.Context, do func() error) error {
			if time.Since(last) < ttl*9/10 {
				return errors.New("connection refused")
			}
			last = time.Now()
			return do()
		}
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		time.Sleep(10 * ttl)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
		require.Less(t, b.renewals.Load(), int64(300), "no pause between tries")
	})
}

// S20: a renewal counts from when it was sent. A late answer still extends the lease if it comes
// before the lease ends.
func TestLateAnswers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		kept  bool
	}{
		{"within the lease", ttl / 2, true},
		{"after the lease", ttl, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onRenew = func(ctx context.Context, do func() error) error {
					err := do()
					return errors.Join(err, wait(ctx, tc.after))
				}
				l := newLocker(t, b, nil)
				ctx, held := acquire(t, t.Context(), l, renewed, "k")
				time.Sleep(10 * ttl)
				require.Equal(t, tc.kept, lock.Check(ctx) == nil)
				require.Equal(t, tc.kept, release(held) == nil)
			})
		})
	}
}

// With renew=off the context ends with the lease, and no renewal is sent.
func TestNoRenew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl, NoRenew: true}, "k")
		<-ctx.Done()
		require.Equal(t, ttl-lock.Margin(ttl), time.Since(began))
		requireLost(t, ctx, l, "k")
		requireOnly(t, lock.ErrLost, release(held))
		require.Zero(t, b.renewals.Load())
	})
}

// S57: the lock of a method that hangs is not renewed for ever.
func TestMax(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl, Max: 5 * ttl}, "k")
		<-ctx.Done()
		require.GreaterOrEqual(t, time.Since(began), 5*ttl)
		require.Less(t, time.Since(began), 6*ttl)
		requireOnly(t, lock.ErrLost, release(held))
		_, held = acquire(t, t.Context(), l, &lock.Policy{Wait: ttl}, "k")
		require.NoError(t, release(held))
	})
}

// S96, N5: the method's own results stay, and its success does not hide the loss.
func TestLossIsJoinedWithTheMethodsOwnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		soldOut := errors.New("sold out")
		for _, own := range []error{nil, soldOut} {
			err := l.Do(t.Context(), renewed, "k", func(ctx context.Context) error {
				<-ctx.Done()
				return own
			})
			require.ErrorIs(t, err, lock.ErrLost)
			require.Equal(t, own != nil, errors.Is(err, soldOut))
			time.Sleep(ttl)
		}
		// An error that already says so is left as it is.
		var cause error
		err := l.Do(t.Context(), renewed, "k", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		require.Same(t, cause, err)
		time.Sleep(ttl)
	})
}

// A lock that was lost because the engine was silent may still be held there. It is released in the
// background, and the next call in the local queue gets it.
func TestLostLeaseIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = hang
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		first := tokenOf(t, ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			ctx, held := acquire(t, t.Context(), l, renewed, "k")
			require.Greater(t, tokenOf(t, ctx), first)
			require.NoError(t, release(held))
		}()
		<-ctx.Done()
		requireOnly(t, lock.ErrLost, release(held))
		<-done
		require.EqualValues(t, 2, b.releases.Load())
	})
}

// A lease that was handed on, and lost before its new holder woke, is released. The engine may have
// more of it than the client knows, because of a renewal without an answer.
func TestLostBeforeItWakes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other goroutine runs while this one does
	for i := range 20 {
		gaveUp := i%2 > 0
		bubble(t, func(t *testing.T) {
			b := &lossNotifier{scripted: newScripted()}
			grants := int64(0)
			b.onGrant = func(*noticedLease) { grants++ }
			l := newLocker(t, b, nil)
			_, held := acquire(t, t.Context(), l, nil, "k")
			type end struct {
				held *lock.Hold
				err  error
			}
			ended := make(chan end, 2)
			ctx, cancel := context.WithCancel(t.Context())
			for _, ctx := range []context.Context{t.Context(), ctx} {
				go func() {
					_, held, err := l.Acquire(ctx, nil, "k")
					ended <- end{held, err}
				}()
				synctest.Wait()
			}
			require.NoError(t, release(held))
			held = (<-ended).held // with a block of tokens, because another call waits
			if gaveUp {
				cancel() // the waiter is awake, and still in the queue
			}
			require.NoError(t, release(held))
			b.last().shorten(time.Hour)
			if last := <-ended; last.err == nil {
				last.held.Release(nil) // lost, if its goroutine woke before
			}
			synctest.Wait()
			require.Equal(t, grants, b.releases.Load(), "each lease must be released once")
			cancel()
		})
	}
}
