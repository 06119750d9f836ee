package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// The error of a lock that was lost in an outage says what failed.
func TestLostSaysWhyItWasNotRenewed(t *testing.T) {
	type refused struct{ error }
	bubble(t, func(t *testing.T) {
		e := locktest.New(t)
		l := e.Locker(nil)
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 3 * time.Second}, "k")
		e.Fail(refused{errors.Join(driver.ErrUnavailable, context.DeadlineExceeded, errors.New("dial: connection refused"))})
		time.Sleep(4 * time.Second)
		err := context.Cause(held.Context())
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorContains(t, err, "its lease is over; the last renewal failed: ")
		require.ErrorContains(t, err, "dial: connection refused")
		require.ErrorAs(t, err, &refused{}, "the engine's own error can be found")
		require.NotErrorIs(t, err, lock.ErrUnavailable, "which would say that the method did not run")
		require.NotErrorIs(t, err, context.DeadlineExceeded, "which would say that the caller's context has ended")
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

func TestLostWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := locktest.New(t)
		_, held := acquire(t, t.Context(), e.Locker(nil), &lock.Policy{TTL: 3 * time.Second}, "k")
		e.Delay(time.Hour)
		time.Sleep(4 * time.Second)
		require.ErrorContains(t, release(held), "its lease is over; a renewal has had no answer yet")
	})
}

// If a method fails with "context canceled" because its lock was lost, the error names the loss
// first.
func TestLossComesBeforeTheCancellation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := locktest.New(t)
		err := e.Locker(nil).Do(t.Context(), nil, "k", func(ctx context.Context) error {
			e.Expire("k")
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, "lock: release k: lock lost: its lease is over\ncontext canceled")
	})
}

func TestCancelledWaitSaysTheCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		defer release(held)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.Join(errors.New("the service stops"), lock.ErrDone)
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, _, err := l.Acquire(ctx, nil, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, "not acquired: context canceled: the service stops")
		require.NotErrorIs(t, err, lock.ErrDone, "that was said of something else")
	})
}

// Two calls share a context, as in an errgroup. The loss of the one's lock ends the wait of the
// other, which has lost nothing.
func TestLossElsewhereEndsAWait(t *testing.T) {
	for name, outer := range map[string]bool{"": false, "under a lock": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := locktest.New(t)
				l := e.Locker(nil)
				defer e.HeldByOther("b").Release()
				parent := t.Context()
				if outer {
					locked, held := acquire(t, parent, l, nil, "o")
					defer func() { require.NoError(t, release(held)) }()
					parent = locked
				}
				group, cancel := context.WithCancelCause(parent)
				go func() {
					cancel(l.Do(group, nil, "a", func(ctx context.Context) error {
						time.Sleep(time.Second)
						e.Expire("a")
						return ctx.Err()
					}))
				}()
				_, _, err := l.Acquire(group, nil, "b")
				requireOnly(t, lock.ErrNotAcquired, err)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "release a: lock lost", "the cause")
				require.NoError(t, l.Do(group, &lock.Policy{Skip: true}, "b", nil))
			})
		})
	}
}

// The end of a Wait for a condition names the cause too, after which the lock is held again.
func TestCondWaitSaysTheCause(t *testing.T) {
	for _, cause := range []error{errors.New("the service stops"), &lock.Error{Op: "hold", Key: "other", Err: lock.ErrLost}} {
		bubble(t, func(t *testing.T) {
			l := newLocker(t, memlock.New(), nil)
			ctx, held := acquire(t, t.Context(), l, nil, "k")
			short, cancel := context.WithTimeoutCause(ctx, time.Second, cause)
			defer cancel()
			err := lock.NewCond(l, "k").Wait(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, cause.Error())
			require.NotErrorIs(t, err, lock.ErrLost)
			require.NoError(t, lock.Check(ctx))
			require.NoError(t, release(held))
		})
	}
}

// Of two calls that take two locks in opposite orders, each error says what the call holds.
func TestFailedWaitSaysWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		_, b := acquire(t, t.Context(), l, nil, "b")
		defer release(b)
		outer, outermost := acquire(t, t.Context(), l, &lock.Policy{Reentrant: true}, "o")
		defer release(outermost)
		ctx, a := acquire(t, outer, l, nil, "a")
		defer release(a)
		_, _, err := l.Acquire(ctx, &lock.Policy{Method: "Shop.Move", Wait: time.Second}, "b")
		require.EqualError(t, err, "lock: acquire b (Shop.Move): not acquired: waited 1s: held by another call of this process, while this call holds a, o")
		_, _, err = l.AcquireAll(ctx, lock.Request{Policy: &lock.Policy{Try: true}, Key: "b"}, lock.Request{Key: "c"})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.ErrorContains(t, err, ", while this call holds a, o")
	})
}

// The log does not say "released" of a release that the engine did not confirm.
func TestLogSaysNotConfirmed(t *testing.T) {
	var out bytes.Buffer
	log := lock.NewLogObserver(slog.New(slog.NewTextHandler(&out, nil)))
	log.Observe(t.Context(), lock.Event{Kind: lock.Released, Policy: &lock.Policy{}, Key: "k", Err: errors.New("no answer")})
	require.Contains(t, out.String(), `level=WARN msg="lock release not confirmed"`)
}

// A Locker that can't be reached and was never closed is reported, also if it was used; a closed
// one is not.
func TestUnclosedLockerIsReported(t *testing.T) {
	reported := make(chan lock.Event, 4)
	observer := observerFunc(func(_ context.Context, e lock.Event) {
		if e.Kind == lock.Unclosed {
			reported <- e
		}
	})
	func() {
		closed := lock.New(memlock.New(), &lock.Options{Observer: observer})
		require.NoError(t, closed.Close(t.Context()))
		lock.New(memlock.New(), &lock.Options{Observer: observer})
		used := lock.New(memlock.New(), &lock.Options{Observer: observer})
		// On a busy machine the lock is not acquired in time, or is lost.
		_, held, _ := used.Acquire(t.Context(), &lock.Policy{TTL: 30 * time.Millisecond}, "k")
		held.Release(nil)
	}()
	var out bytes.Buffer
	for range 2 {
		e := <-collected(t, reported)
		require.ErrorContains(t, e.Err, "call Close when the service ends")
		lock.NewLogObserver(slog.New(slog.NewTextHandler(&out, nil))).Observe(t.Context(), e)
	}
	require.Contains(t, out.String(), `level=WARN msg="lock unclosed" error="a Locker was never closed: `)
	require.Empty(t, reported)
}

type observerFunc func(context.Context, lock.Event)

func (f observerFunc) Observe(ctx context.Context, e lock.Event) { f(ctx, e) }

// collected runs the garbage collector until there is an event.
func collected(t *testing.T, reported chan lock.Event) chan lock.Event {
	for len(reported) == 0 && t.Context().Err() == nil {
		runtime.GC()
		runtime.Gosched()
	}
	return reported
}

func TestOverrides(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var asked []time.Duration
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			asked = append(asked, a.TTL)
			return do()
		}
		l := newLocker(t, b, &lock.Options{HandOff: -1, TTL: 7 * time.Second, Patterns: map[string]lock.Override{
			"shop:<id>": {TTL: time.Minute, Wait: time.Second, Max: 2 * time.Minute},
		}})
		p := &lock.Policy{Pattern: "shop:<id>", TTL: 5 * time.Second, Wait: time.Hour}
		ctx, held := acquire(t, t.Context(), l, p, "shop:1")
		_, other := acquire(t, t.Context(), l, &lock.Policy{Pattern: "stock:<id>", TTL: 5 * time.Second}, "stock:1")
		require.Equal(t, []time.Duration{time.Minute, 5 * time.Second}, asked)
		_, _, err := l.Acquire(t.Context(), p, "shop:1")
		require.ErrorContains(t, err, "waited 1s")
		_, _, err = l.Acquire(t.Context(), &lock.Policy{Pattern: "shop:<id>", Try: true, NoRenew: true}, "shop:1")
		require.ErrorIs(t, err, lock.ErrNotAcquired, "an override that a policy excludes does not count")
		require.Equal(t, 5*time.Second, p.TTL, "the policy is not written to")
		require.NoError(t, release(other))
		time.Sleep(4 * time.Minute)
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost, "Max is over")
		release(held)
	})
	require.PanicsWithValue(t, `lock: Options.Patterns["a"]: invalid: Wait is -1ns; it must not be negative (Try means not to wait)`, func() {
		lock.New(memlock.New(), &lock.Options{Patterns: map[string]lock.Override{"a": {Wait: -1}}})
	})
}
