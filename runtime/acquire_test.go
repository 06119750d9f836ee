package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var sentinels = []error{
	lock.ErrNotAcquired, lock.ErrUnavailable, lock.ErrIndeterminate, lock.ErrLost,
	lock.ErrDeadlock, lock.ErrConflict, lock.ErrInvalid, lock.ErrClosed,
}

// requireOnly requires that err is kind, and none of the other sentinel errors.
func requireOnly(t *testing.T, kind, err error) {
	t.Helper()
	for _, s := range sentinels {
		require.Equal(t, s == kind, errors.Is(err, s), "errors.Is(%v, %v)", err, s)
	}
}

// S22: each error of the engine reaches the caller as its own class, never as "held by another",
// and the method does not run.
func TestEachEngineErrorHasItsClass(t *testing.T) {
	refused := errors.New("OOM command not allowed")
	for _, tc := range []struct {
		name      string
		err, kind error
	}{
		{"refused", refused, lock.ErrUnavailable},
		{"no connection", &net.OpError{Op: "dial", Err: refused}, lock.ErrUnavailable},
		{"unknown result", fmt.Errorf("%w: %w", lock.ErrIndeterminate, refused), lock.ErrIndeterminate},
		{"data of another program", fmt.Errorf("%w: WRONGTYPE", lock.ErrConflict), lock.ErrConflict},
		{"impossible", fmt.Errorf("%w: key too long", lock.ErrInvalid), lock.ErrInvalid},
		{"closed", lock.ErrClosed, lock.ErrClosed},
		{"held", &driver.HeldError{}, lock.ErrNotAcquired},
		{"a client's own timeout", fmt.Errorf("dial: %w", context.DeadlineExceeded), lock.ErrUnavailable},
		{"a client's own cancel", fmt.Errorf("pool: %w", context.Canceled), lock.ErrUnavailable},
		{"a client's own timeout, outcome unknown", fmt.Errorf("%w: %w", lock.ErrIndeterminate, context.DeadlineExceeded), lock.ErrIndeterminate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
					return nil, tc.err
				}
				l := newLocker(t, b, nil)
				ran := false
				err := l.Do(t.Context(), &lock.Policy{Method: "Shop.Buy", Try: true}, "k", func(context.Context) error {
					ran = true
					return nil
				})
				require.False(t, ran)
				requireOnly(t, tc.kind, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
				require.NotErrorIs(t, err, context.Canceled, "the caller's context has not ended")
				require.NotContains(t, err.Error(), "\n")
				require.NotContains(t, err.Error(), tc.kind.Error()+": "+tc.kind.Error())
				var where *lock.Error
				require.ErrorAs(t, err, &where)
				require.Equal(t, lock.Error{Op: "acquire", Method: "Shop.Buy", Key: "k", Err: where.Err}, *where)
			})
		})
	}
}

// S14, G6: an acquire with no answer, which may have run, is undone in the background until the
// undo succeeds. The key is free long before the ttl has passed.
func TestAcquireWithoutAnswerIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var healed atomic.Bool
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			do() // it ran, but its answer is lost
			return nil, lock.ErrIndeterminate
		}
		b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
			if !healed.Load() {
				return errors.New("no route")
			}
			return b.Backend.Undo(ctx, a)
		}
		l := newLocker(t, b, nil)
		_, _, err := l.Acquire(t.Context(), nil, "k")
		requireOnly(t, lock.ErrIndeterminate, err)

		time.Sleep(3 * time.Second)
		undone := seen(b, &b.undone)
		require.Greater(t, len(undone), 3, "one try only")
		require.Less(t, len(undone), 30, "no backoff")
		healed.Store(true)
		time.Sleep(time.Second)
		undone = seen(b, &b.undone)
		for _, id := range undone {
			require.Equal(t, undone[0], id)
		}
		b.onAcquire = nil
		_, held := acquire(t, t.Context(), l, &lock.Policy{Try: true}, "k")
		require.NoError(t, release(held))
		time.Sleep(time.Minute)
		require.Len(t, seen(b, &b.undone), len(undone), "undone again after it was done")
	})
}

// G6: an undo is repeated until the engine's own lease ends at the latest, unless it is the undo of
// a place in the engine's queue.
func TestUndoingEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
			return nil, lock.ErrIndeterminate
		}
		last := time.Now()
		b.onUndo = func(context.Context, *driver.Acquisition) error {
			last = time.Now()
			return errors.New("no route")
		}
		l := newLocker(t, b, nil)
		_, _, err := l.Acquire(t.Context(), &lock.Policy{TTL: 5 * time.Second, Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Greater(t, time.Since(last), time.Hour-7*time.Second)
	})
}

// G6: an attempt that had no answer is undone even if a later attempt of the same acquisition had
// one.
func TestUnansweredAttemptIsUndone(t *testing.T) {
	for name, answer := range map[string]error{"held": &driver.HeldError{}, "refused": errors.New("LOADING")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(_ context.Context, a *driver.Acquisition, _ func() (driver.Lease, error)) (driver.Lease, error) {
					a.MayHaveRun = true
					return nil, answer
				}
				l := newLocker(t, b, nil)
				_, _, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
				require.Error(t, err)
				time.Sleep(time.Second)
				require.EqualValues(t, 1, b.undos.Load())
			})
		})
	}
}

// The place in the engine's queue is given up when nobody waits any more, however the wait ended.
func TestQueuePlaceIsGivenUp(t *testing.T) {
	for name, second := range map[string]error{"held": &driver.HeldError{}, "refused": errors.New("READONLY")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(_ context.Context, a *driver.Acquisition, _ func() (driver.Lease, error)) (driver.Lease, error) {
					require.True(t, a.Queue)
					if b.acquires.Load() == 1 {
						return nil, &driver.HeldError{}
					}
					return nil, second
				}
				b.onUndo = func(_ context.Context, a *driver.Acquisition) error {
					require.True(t, a.Queue)
					return nil
				}
				l := newLocker(t, b, nil)
				_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 3 * time.Second}, "k")
				require.Error(t, err)
				time.Sleep(time.Second)
				require.EqualValues(t, 1, b.undos.Load())
			})
		})
	}
}

// S11: a grant that took longer than its lease lasts is released, and the method does not run under
// it.
func TestGrantSlowerThanTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := do()
			time.Sleep(2 * time.Second)
			return lease, err
		}
		l := newLocker(t, b, nil)
		_, _, err := l.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
		time.Sleep(time.Second)
		require.Positive(t, b.releases.Load())
	})
}

// S23: an acquire whose context has ended sends nothing.
func TestEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, held, err := l.Acquire(ctx, nil, "k")
		require.Nil(t, held)
		requireOnly(t, lock.ErrNotAcquired, err)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, b.acquires.Load())
	})
}

// S24: cancelling the context during the command ends the call within 100 ms, and the error still
// wraps the context's own error.
func TestCancelDuringTheCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("%w: i/o timeout", lock.ErrIndeterminate)
		}
		l := newLocker(t, b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, _, err := l.Acquire(ctx, nil, "k")
		require.LessOrEqual(t, time.Since(began), 150*time.Millisecond)
		requireOnly(t, lock.ErrIndeterminate, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, b.undos.Load())
	})
}

// If the wait ends at the moment when the call's turn comes, nothing is sent with a context that
// has ended. The call returns "not acquired", whichever event its goroutine sees first.
func TestWaitEndsAsTheTurnComes(t *testing.T) {
	for name, holder := range map[string]string{"held here": "k", "held elsewhere": "another"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					require.NoError(t, ctx.Err())
					if a.Key != holder && holder != "k" {
						return nil, &driver.HeldError{RetryAfter: 99 * time.Millisecond} // and a millisecond later the next try
					}
					return do()
				}
				l := newLocker(t, b, &lock.Options{HandOff: -1})
				for range 100 {
					_, held := acquire(t, t.Context(), l, nil, holder)
					time.AfterFunc(100*time.Millisecond, func() { held.Release(nil) })
					_, second, err := l.Acquire(t.Context(), &lock.Policy{Wait: 100 * time.Millisecond}, "k")
					if err != nil {
						requireOnly(t, lock.ErrNotAcquired, err)
					}
					second.Release(nil)
					synctest.Wait()
				}
			})
		})
	}
}

// late is a context whose Err reports the end before Done does.
type late struct {
	context.Context
	ended atomic.Bool
}

func (l *late) Err() error {
	if l.ended.Load() {
		return context.Canceled
	}
	return l.Context.Err()
}

// S25: if the context is cancelled at the moment when the call's turn comes, the call passes the
// turn on without using it.
func TestCancelAsTheTurnComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		ctx := &late{Context: t.Context()}
		done := make(chan error)
		go func() {
			_, _, err := l.Acquire(ctx, nil, "k")
			done <- err
		}()
		synctest.Wait()
		ctx.ended.Store(true)
		require.NoError(t, release(held))
		err := <-done
		requireOnly(t, lock.ErrNotAcquired, err)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, b.acquires.Load())
	})
}

// The end of a policy's wait is not reported as a deadline of the caller's context.
func TestWaitThatEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		other := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), other, &lock.Policy{TTL: 100 * time.Second}, "k")
		defer held.Release(nil)
		l := newLocker(t, b, nil)
		began := time.Now()
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 7 * time.Second}, "k")
		require.Equal(t, 7*time.Second, time.Since(began))
		requireOnly(t, lock.ErrNotAcquired, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, err.Error(), "waited 7s")
	})
}

func TestNilMeansDefaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var asked driver.Acquisition
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			asked = *a
			return do()
		}
		l := newLocker(t, b, nil)
		require.NoError(t, l.Do(t.Context(), nil, "k", func(ctx context.Context) error { return lock.Check(ctx) }))
		require.Equal(t, lock.DefaultTTL, asked.TTL)
		require.EqualValues(t, 1, asked.Tokens)
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:1$`, asked.ID)

		ctx, held, err := l.AcquireAll(t.Context(), lock.Request{Key: "k"}, lock.Request{Key: "k2"})
		require.NoError(t, err)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

func TestNamedBackends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		own, named := newScripted(), newScripted()
		l := lock.New(own, &lock.Options{Backends: map[string]driver.Backend{"eu": named}})
		eu := &lock.Policy{Backend: "eu", Try: true}
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		// One key at two backends is two locks, nested or not.
		inner, second := acquire(t, ctx, l, eu, "k")
		require.EqualValues(t, 1, named.acquires.Load())
		_, _, err := l.Acquire(inner, eu, "k")
		requireOnly(t, lock.ErrDeadlock, err)
		_, _, err = l.Acquire(ctx, &lock.Policy{Backend: "us"}, "k")
		requireOnly(t, lock.ErrInvalid, err)
		require.NoError(t, release(second))
		require.NoError(t, release(held))
		require.NoError(t, l.Close(t.Context()))
		for _, b := range []*scripted{own, named} {
			require.EqualValues(t, 1, b.attaches.Load())
			require.EqualValues(t, 1, b.closes.Load())
		}
	})
}

// A lease that is to be handed on is longer than the policy's ttl. If the engine refuses such a
// length, the waiting call gets the policy's ttl.
func TestLongestLeaseContended(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.TTL > ttl {
				return nil, fmt.Errorf("%w: too long", lock.ErrInvalid)
			}
			return do()
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl}, "k")
		next := make(chan error, 2)
		for range 2 {
			go func() {
				next <- l.Do(t.Context(), &lock.Policy{TTL: ttl}, "k", func(context.Context) error { return nil })
			}()
		}
		synctest.Wait()
		require.NoError(t, release(held))
		require.NoError(t, <-next)
		require.NoError(t, <-next)
	})
}
