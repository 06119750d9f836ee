package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S19: a release that fails never turns a success into an error. It is repeated in the background,
// without renewals, and ends with the lease.
func TestFailedReleaseGoesOnInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var mu sync.Mutex
		var last time.Time
		b.onRelease = func(context.Context, uint64, func() error) error {
			mu.Lock()
			defer mu.Unlock()
			last = time.Now()
			return errors.New("READONLY")
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(held))
		ended := time.Now()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		require.Greater(t, b.releases.Load(), int64(5))
		require.Greater(t, last.Sub(ended), ttl*8/10)
		require.Less(t, last.Sub(ended), ttl+2*time.Second)
		require.Zero(t, b.renewals.Load())
	})
}

// S17: the release ran, but its answer was lost. The repetition is answered "not the owner", and
// that is no loss.
func TestLostAnswerToARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			if err := do(); err != nil {
				return err
			}
			return errors.New("EOF")
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(held))
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, b.releases.Load())
	})
}

// G7: a hung engine delays the caller for at most a second, and for 100 ms once the caller's
// context has ended.
func TestHungReleaseDelaysTheCallerInBounds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ends  time.Duration // when the caller's context ends, after the release began; 0 means never
		bound time.Duration
	}{
		{"live context", 0, time.Second},
		{"context ends meanwhile", 300 * time.Millisecond, 400 * time.Millisecond},
		{"context ended before", -time.Second, 100 * time.Millisecond},
		{"context ends late", 950 * time.Millisecond, time.Second},
	} {
		for _, several := range []bool{false, true} {
			name := tc.name
			if several {
				name += ", several locks"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := newScripted()
					var healed atomic.Bool
					b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
						if healed.Load() {
							return do()
						}
						return hang(ctx, do)
					}
					l := newLocker(t, b, nil)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					reqs := []lock.Request{{Key: "k"}}
					if several {
						reqs = append(reqs, lock.Request{Key: "k2"}, lock.Request{Key: "k3"})
					}
					_, held, err := l.AcquireAll(ctx, reqs...)
					require.NoError(t, err)
					if tc.ends < 0 {
						cancel()
					} else if tc.ends > 0 {
						time.AfterFunc(tc.ends, cancel)
					}
					synctest.Wait()
					began := time.Now()
					require.NoError(t, release(held))
					require.Equal(t, tc.bound, time.Since(began))
					time.Sleep(3 * time.Second) // the tries in the background hang as well
					healed.Store(true)
					time.Sleep(3 * time.Second)
					_, held = acquire(t, t.Context(), l, &lock.Policy{Try: true}, "k")
					require.NoError(t, release(held))
				})
			})
		}
	}
}

// S26: the release runs although the caller's context has ended. Its own context has not ended, and
// has the values of the caller's.
func TestReleaseUnderACancelledContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type traceKey struct{}
		b := newScripted()
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			require.NoError(t, ctx.Err())
			require.Equal(t, "trace", ctx.Value(traceKey{}))
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(deadline), time.Second)
			select {
			case <-ctx.Done():
				t.Error("the context ended before the release began")
			default:
			}
			return do()
		}
		l := newLocker(t, b, nil)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace"))
		_, held := acquire(t, ctx, l, renewed, "k")
		cancel()
		require.NoError(t, release(held))
		_, held = acquire(t, t.Context(), l, &lock.Policy{Try: true}, "other")
		b.onRelease = nil
		require.NoError(t, release(held))
	})
}

// A client library uses the context of a release in its own goroutines, and may still use it when
// the release is over.
func TestReleaseContextIsUsedByManyGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var kept context.Context
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			kept = ctx
			concurrently(8, func(i int) {
				if i%2 == 0 {
					_ = ctx.Err()
					return
				}
				derived, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				require.NoError(t, derived.Err())
			})
			return do()
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(held))
		requireEnded(t, kept)

		// If a backend never asked for Done, no timer is left either.
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			kept = ctx
			return do()
		}
		_, held = acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(held))
		requireEnded(t, kept)
	})
}

func requireEnded(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	default:
		t.Error("the context has not ended with its call")
	}
	require.Error(t, ctx.Err())
}

// S97: "not the owner" is the only answer to a release that the caller gets, next to the method's
// own error.
func TestReleaseAnsweredNotTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(context.Context, uint64, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		soldOut := errors.New("sold out")
		for _, own := range []error{nil, soldOut} {
			err := l.Do(t.Context(), &lock.Policy{TTL: time.Second, Method: "Shop.Buy"}, "k", func(context.Context) error { return own })
			require.ErrorIs(t, err, lock.ErrLost)
			require.Equal(t, own != nil, errors.Is(err, soldOut))
			var where *lock.Error
			require.ErrorAs(t, err, &where)
			require.Equal(t, lock.Error{Op: "release", Method: "Shop.Buy", Key: "k", Err: where.Err}, *where)
			time.Sleep(2 * time.Second)
		}
		require.EqualValues(t, 2, b.releases.Load(), "repeated")
	})
}

// S18, S97, G4: a second release does nothing, also to the same client's next hold of the key.
func TestReleaseTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, first := acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(first))
		ctx, second := acquire(t, t.Context(), l, renewed, "k")
		require.NoError(t, release(first))
		require.EqualValues(t, 1, b.releases.Load())
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, ctx.Err())
		require.NoError(t, release(second))

		_, several, err := l.AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Key: "b"})
		require.NoError(t, err)
		require.NoError(t, release(several))
		require.NoError(t, release(several))
		require.EqualValues(t, 4, b.releases.Load())

		// Two releases at once: one of them releases the lock, and the other does nothing.
		_, third := acquire(t, t.Context(), l, renewed, "k")
		concurrently(2, func(int) { third.Release(nil) })
		require.EqualValues(t, 5, b.releases.Load())
	})
}

func TestReleaseOfNothing(t *testing.T) {
	var held *lock.Hold
	require.NotPanics(t, func() { held.Release(nil) })
	own := errors.New("own")
	held.Release(&own)
	require.EqualError(t, own, "own")
}

// If a loss and a release come at the same instant, the method gets nil only if its release reached
// the engine.
func TestLossRacesWithRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			b := newScripted()
			b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
			l := lock.New(b.plain(), nil)
			var mu sync.Mutex
			fine := int64(0)
			var over atomic.Bool
			for range 2 {
				go func() { // keep the watchdog's table busy, so that the loss takes time
					time.Sleep(ttl / 3)
					for !over.Load() {
						l.Watched()
					}
				}()
			}
			concurrently(100, func(i int) {
				_, held := acquire(t, t.Context(), l, renewed, string(rune('A'+i)))
				time.Sleep(ttl / 3) // exactly when the lease is renewed
				if release(held) == nil {
					mu.Lock()
					fine++
					mu.Unlock()
				}
			})
			over.Store(true)
			require.NoError(t, l.Close(t.Context()))
			require.Equal(t, b.releases.Load(), fine)
		}
	})
}

// The Observer gets the engine's answer to the release after AtLeast.
func TestAtLeastReportsItsRelease(t *testing.T) {
	for name, c := range map[string]struct {
		release func(context.Context, func() error) error
		kind    lock.EventKind
		err     error
	}{
		"no answer": {hang, lock.Released, context.DeadlineExceeded},
		"not owner": {func(context.Context, func() error) error { return lock.ErrLost }, lock.Lost, lock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
					if b.releases.Load() > 1 {
						return do()
					}
					return c.release(ctx, do)
				}
				events := make(chan lock.Event, 2)
				l := newLocker(t, b, &lock.Options{Observer: observerFunc(func(_ context.Context, e lock.Event) { events <- e })})
				require.NoError(t, l.Do(t.Context(), &lock.Policy{AtLeast: time.Second}, "k", func(context.Context) error { return nil }))
				require.Equal(t, lock.Acquired, (<-events).Kind)
				last := <-events
				require.Equal(t, c.kind, last.Kind)
				require.ErrorIs(t, last.Err, c.err)
			})
		})
	}
}
