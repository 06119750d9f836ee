package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestInvalidTicks(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	once := &lock.Policy{Once: true}
	for tick, says := range map[string]string{"": "is empty", strings.Repeat("x", 201): "201 bytes", "\xff": "UTF-8"} {
		_, _, err := l.AcquireOnce(t.Context(), once, "k", tick)
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	_, _, err := l.AcquireOnce(t.Context(), &lock.Policy{}, "k", "1")
	require.ErrorIs(t, err, lock.ErrInvalid)
	_, _, err = l.AcquireOnce(t.Context(), nil, "k", "1")
	require.ErrorIs(t, err, lock.ErrInvalid)
	_, _, err = l.Acquire(t.Context(), once, "k")
	require.ErrorContains(t, err, "AcquireOnce")
	require.ErrorIs(t, l.Lead(t.Context(), nil, "k", nil), lock.ErrInvalid)
	_, err = l.Leader(t.Context(), once, "k")
	require.ErrorIs(t, err, lock.ErrInvalid)
	for _, p := range []lock.Policy{{Leader: true, Skip: true}, {Leader: true, AtLeast: time.Second}} {
		err := l.Lead(t.Context(), &p, "k", func(context.Context) error { return nil })
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, "Leader excludes Skip and AtLeast")
		require.Panics(t, func() { l.MustSupport(&p) })
	}
}

// A run whose release had no answer is marked as completed once the engine is back.
func TestCompletedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, once := locktest.New(t), &lock.Policy{Once: true, TTL: time.Minute}
		a, b := engine.Locker(nil), engine.Locker(nil)
		_, held, err := a.AcquireOnce(t.Context(), once, "k", "1")
		require.NoError(t, err)
		engine.Fail(errors.New("away"))
		held.Complete()
		require.NoError(t, held.Unlock())
		engine.Heal()
		_, _, err = b.AcquireOnce(t.Context(), once, "k", "1")
		require.ErrorIs(t, err, lock.ErrDone)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
	})
}

func TestAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		l, other := lock.New(b, nil), lock.New(b, nil)
		defer func() { _ = other.Close(t.Context()) }()
		p, begin := &lock.Policy{AtLeast: 10 * time.Second, TTL: time.Second}, time.Now()
		require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { return nil }))
		require.Zero(t, time.Since(begin)) // the call returns at once
		_, held, err := other.Acquire(t.Context(), nil, "k")
		require.NoError(t, err)
		require.InDelta(t, 10, time.Since(begin).Seconds(), 1.1)
		held.Release(nil)

		require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { time.Sleep(time.Minute); return nil }))
		_, held, err = other.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
		require.NoError(t, err) // the method took longer than AtLeast
		held.Release(nil)

		require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { return nil }))
		begin = time.Now()
		require.NoError(t, l.Close(t.Context())) // Close waits for the lock that AtLeast keeps
		require.Equal(t, 10*time.Second, time.Since(begin))
	})
}

func TestAtLeastEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		require.NoError(t, l.Do(t.Context(), &lock.Policy{AtLeast: time.Hour}, "k", func(context.Context) error { return nil }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		synctest.Wait() // the background release has ended
	})
}

// Close does not wait for a lock that was lost while AtLeast kept it.
func TestAtLeastEndsWithALoss(t *testing.T) {
	for name, renew := range map[string]func(context.Context, func() error) error{
		"no answer": hang,
		"not owner": func(context.Context, func() error) error { return lock.ErrLost },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newScripted()
				b.onRenew = renew
				l := lock.New(b, nil)
				p := &lock.Policy{TTL: 10 * time.Second, AtLeast: time.Hour}
				ctx, cancel := context.WithCancel(t.Context())
				require.NoError(t, l.Do(ctx, p, "k", func(context.Context) error { return nil }))
				cancel() // the end of the caller's context is no loss
				synctest.Wait()
				require.Len(t, l.Snapshot().Holds, 1)
				time.Sleep(time.Minute)
				require.Empty(t, l.Snapshot().Holds)
				begin := time.Now()
				require.NoError(t, l.Close(t.Context()))
				require.Zero(t, time.Since(begin))
			})
		})
	}
}

func TestSkip(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	_, held, err := l.Acquire(t.Context(), nil, "k")
	require.NoError(t, err)
	defer held.Release(nil)
	fail := func(context.Context) error { return errors.New("it ran") }
	require.NoError(t, l.Do(t.Context(), &lock.Policy{Try: true, Skip: true}, "k", fail))
	require.ErrorIs(t, l.Do(t.Context(), &lock.Policy{Try: true}, "k", fail), lock.ErrNotAcquired)
	require.ErrorIs(t, l.Do(t.Context(), &lock.Policy{Skip: true}, "", fail), lock.ErrInvalid)
}

// Lead campaigns again after a term that failed or was lost. It returns when the work is done, or
// when its context or Locker ends.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, p := locktest.New(t), &lock.Policy{Leader: true, TTL: time.Minute}
		l, terms, failed := engine.Locker(nil), 0, errors.New("it failed")
		begin := time.Now()
		require.NoError(t, l.Lead(t.Context(), p, "k", func(ctx context.Context) error {
			switch terms++; terms {
			case 1, 2:
				return failed
			case 3:
				engine.Expire("k")
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
				return nil // to return nil after a loss does not end the work
			}
			require.Equal(t, "leader", l.Snapshot().Holds[0].Kind)
			return nil
		}))
		require.Equal(t, 4, terms)
		require.InDelta(t, 0.7, time.Since(begin).Seconds(), 0.05) // 100, 200 and 400 ms

		ctx, cancel := context.WithCancel(t.Context())
		err := l.Lead(ctx, p, "k", func(context.Context) error { cancel(); return failed })
		require.ErrorIs(t, err, failed)

		_, held, err := engine.Locker(nil).Acquire(t.Context(), &lock.Policy{Fair: true, TTL: time.Minute}, "k")
		require.NoError(t, err)
		require.ErrorIs(t, l.Lead(t.Context(), &lock.Policy{Leader: true, Try: true}, "k", nil), lock.ErrNotAcquired)
		held.Release(nil)

		go func() { time.Sleep(time.Second); _ = l.Close(t.Context()) }()
		err = l.Lead(t.Context(), p, "k", func(ctx context.Context) error { return failed })
		require.ErrorIs(t, err, lock.ErrClosed)
		require.ErrorIs(t, err, failed)
	})
}

// A leader that works until its context ends resigns when its Locker is closed.
func TestLeadEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, p := locktest.New(t), &lock.Policy{Leader: true, TTL: time.Minute}
		l := lock.New(engine, nil)
		ended := make(chan error)
		go func() {
			ended <- l.Lead(t.Context(), p, "k", func(ctx context.Context) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), lock.ErrClosed)
				require.NoError(t, lock.Check(ctx)) // it still leads, until it returns
				return ctx.Err()
			})
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, <-ended, lock.ErrClosed)
	})
}

// A campaign continues while the engine is slow for a time.
func TestLeadWithASlowEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := do()
			if b.acquires.Load() < 20 {
				time.Sleep(ttl)
			}
			return lease, err
		}
		l, led := newLocker(t, b, nil), false
		p := &lock.Policy{Leader: true, TTL: ttl}
		require.NoError(t, l.Lead(t.Context(), p, "k", func(context.Context) error { led = true; return nil }))
		require.True(t, led)
	})
}

// Lead asks an engine that is away less and less often, however long an attempt takes.
func TestLeadWithAnEngineThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, begin := newScripted(), time.Now()
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if time.Since(begin) < time.Minute {
				time.Sleep(500 * time.Millisecond)
				return nil, driver.ErrUnavailable
			}
			return do()
		}
		l := newLocker(t, b, nil)
		require.NoError(t, l.Lead(t.Context(), &lock.Policy{Leader: true}, "k", func(context.Context) error { return nil }))
		require.LessOrEqual(t, b.acquires.Load(), int64(15))
	})
}

// AtLeast keeps no lock if the method did not run because another of its locks was not acquired.
func TestAtLeastOfAMethodThatDidNotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "b")
		_, _, err := l.AcquireAll(t.Context(),
			lock.Request{Policy: &lock.Policy{AtLeast: time.Hour}, Key: "a"}, lock.Request{Policy: &lock.Policy{Try: true}, Key: "b"})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		_, held := acquire(t, t.Context(), other, &lock.Policy{Try: true}, "a")
		require.NoError(t, release(held))
		require.NoError(t, release(theirs))
	})
}

// A lock that is lost while AtLeast keeps it is reported as lost, and not also as released.
func TestAtLeastIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newScripted(), &events{kinds: map[lock.EventKind]int{}}
		l := newLocker(t, b, &lock.Options{Observer: heard})
		p := &lock.Policy{TTL: ttl, AtLeast: 10 * ttl}
		require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { return nil }))
		time.Sleep(20 * ttl)
		heard.mu.Lock()
		require.Equal(t, 1, heard.kinds[lock.Released])
		heard.mu.Unlock()
		b.onRenew = func(context.Context, func() error) error { return lock.ErrLost }
		require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { return nil }))
		time.Sleep(20 * ttl)
		heard.mu.Lock()
		defer heard.mu.Unlock()
		require.Equal(t, 1, heard.kinds[lock.Released])
		require.Equal(t, 1, heard.kinds[lock.Lost])
	})
}

func TestWatchLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := memlock.New(), &lock.Policy{Leader: true}
		l := lock.New(b, &lock.Options{Name: "a"})
		defer func() { _ = l.Close(t.Context()) }()
		ctx, cancel := context.WithCancel(t.Context())
		var names []string
		var watched atomic.Bool
		go func() {
			_ = l.WatchLeader(ctx, p, "k", func(who *lock.Leadership) {
				if who == nil {
					names = append(names, "nobody")
				} else {
					names = append(names, who.Name)
				}
			})
			watched.Store(true)
		}()
		for range 2 {
			time.Sleep(3 * time.Second)
			require.NoError(t, l.Lead(t.Context(), p, "k", func(context.Context) error { time.Sleep(3 * time.Second); return nil }))
		}
		time.Sleep(3 * time.Second)
		cancel()
		synctest.Wait()
		require.True(t, watched.Load())
		require.Equal(t, []string{"nobody", "a", "nobody", "a", "nobody"}, names)
	})
}

// The pause after a campaign does not grow with the time for which another process led.
func TestPauseOfAFollower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var failed time.Time
		var longest time.Duration
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if !failed.IsZero() {
				longest = max(longest, time.Since(failed))
			}
			if b.acquires.Load() > 10 {
				return do()
			}
			time.Sleep(time.Minute)
			failed = time.Now()
			return nil, driver.ErrUnavailable
		}
		l := newLocker(t, b, nil)
		require.NoError(t, l.Lead(t.Context(), &lock.Policy{Leader: true}, "k", func(context.Context) error { return nil }))
		require.EqualValues(t, 11, b.acquires.Load())
		require.LessOrEqual(t, longest, time.Second)
	})
}
