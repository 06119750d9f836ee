package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// slow returns a Backend where another process holds "k" and each answer takes d.
func slow(t *testing.T, d time.Duration) *scripted {
	b := newScripted()
	other := newLocker(t, b.Backend, nil)
	_, held := acquire(t, t.Context(), other, nil, "k")
	t.Cleanup(func() { require.NoError(t, release(held)) })
	b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
		select {
		case <-time.After(d):
			return do()
		case <-ctx.Done():
			return b.silent(ctx)
		}
	}
	return b
}

// lateCaller acquires k under p, and returns the error. Before, it starts another call for k, which
// ends 10 ms earlier with the error first.
func lateCaller(t *testing.T, l *lock.Locker, p *lock.Policy, first error, wait, after time.Duration) error {
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), wait-10*time.Millisecond)
		defer cancel()
		_, _, err := l.Acquire(ctx, nil, "k")
		requireOnly(t, first, err)
	}()
	time.Sleep(after)
	ctx, cancel := context.WithTimeout(t.Context(), wait-after)
	defer cancel()
	_, _, err := l.Acquire(ctx, p, "k")
	return err
}

// A call gets its turn in the local queue, and its first attempt is cut short. A moment before, the
// engine answered that another process holds the key, so the error is not that the engine is away.
func TestAnswerCountsForTheNextInTheQueue(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"context": nil, "wait": {Wait: 155 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, slow(t, 50*time.Millisecond), nil)
				err := lateCaller(t, l, p, lock.ErrNotAcquired, 310*time.Millisecond, 150*time.Millisecond)
				requireOnly(t, lock.ErrNotAcquired, err)
				require.Equal(t, p == nil, errors.Is(err, context.DeadlineExceeded))
			})
		})
	}
}

// An old answer does not hide that the engine is silent now.
func TestOldAnswerDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := failing(t, 500*time.Millisecond, (*scripted).silent)
		requireOnly(t, lock.ErrIndeterminate, lateCaller(t, newLocker(t, b, nil), nil, lock.ErrIndeterminate, 4*time.Second, 10*time.Millisecond))
	})
}

// Once this process has held the key, an earlier answer does not say who holds it now.
func TestAnswerEndsWithAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		l := newLocker(t, b, &lock.Options{HandOff: -1})
		granted := make(chan *lock.Hold)
		go func() {
			_, held := acquire(t, t.Context(), l, nil, "k")
			granted <- held
		}()
		synctest.Wait()
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 10 * time.Second}, "k")
			ended <- err
		}()
		time.Sleep(2 * time.Second) // meanwhile the first call has asked again
		require.NoError(t, release(theirs))
		held := <-granted
		b.mute()
		require.NoError(t, release(held))
		requireOnly(t, lock.ErrIndeterminate, <-ended)
	})
}

// failing returns slow(t, time.Millisecond), which calls answer for each acquire once after has
// passed.
func failing(t *testing.T, after time.Duration, answer func(b *scripted, ctx context.Context) (driver.Lease, error)) *scripted {
	b := slow(t, time.Millisecond)
	before, began := b.onAcquire, time.Now()
	b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
		if time.Since(began) > after {
			return answer(b, ctx)
		}
		return before(ctx, a, do)
	}
	return b
}

// A call's own answer becomes too old as well. If the engine has been silent since, the error says
// so, and the fallback of Skip does not run.
func TestOwnAnswerExpires(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"wait": {Wait: time.Minute}, "skip": {Wait: time.Minute, Skip: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, failing(t, 500*time.Millisecond, (*scripted).silent), nil)
				err := l.Do(t.Context(), p, "k", func(context.Context) error { return nil })
				requireOnly(t, lock.ErrIndeterminate, err)
			})
		})
	}
}

// A call that keeps its place in the queue of an engine that is away continues to wait, and its
// error does not say that the lock was held.
func TestPlaceAtAnEngineThatIsAway(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		kind error
	}{{time.Minute, lock.ErrUnavailable}, {2 * time.Second, lock.ErrNotAcquired}} {
		bubble(t, func(t *testing.T) {
			b := failing(t, 500*time.Millisecond, func(*scripted, context.Context) (driver.Lease, error) {
				return nil, fmt.Errorf("%w: %w", &driver.HeldError{}, lock.ErrUnavailable)
			})
			began := time.Now()
			_, _, err := newLocker(t, b, nil).Acquire(t.Context(), &lock.Policy{Wait: c.wait}, "k")
			requireOnly(t, c.kind, err)
			require.Equal(t, c.wait, time.Since(began))
		})
	}
}

// A waiter gets no notice while the other process holds the key, but it keeps asking. So while the
// engine answers, even slowly, its last answer never becomes too old.
func TestAnswerCountsWhileTheEngineAnswers(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 900 * time.Millisecond, 1900 * time.Millisecond} {
		for _, wait := range []time.Duration{59500 * time.Millisecond, time.Minute, 60500 * time.Millisecond} {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, slow(t, takes), nil)
				_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: wait}, "k")
				requireOnly(t, lock.ErrNotAcquired, err)
			})
		}
	}
}

// The answer to another call becomes too old while the engine does not answer this call.
func TestAnswerExpiresInTheNextAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, failing(t, 250*time.Millisecond, (*scripted).silent), nil)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 300 * time.Millisecond}, "k")
			requireOnly(t, lock.ErrNotAcquired, err)
		}()
		synctest.Wait()
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 10 * time.Second}, "k")
		requireOnly(t, lock.ErrIndeterminate, err)
	})
}

// After a failure, an answer that the engine gave before does not count.
func TestFailureEndsAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var failed atomic.Bool
		l := newLocker(t, failing(t, 250*time.Millisecond, func(b *scripted, ctx context.Context) (driver.Lease, error) {
			if !failed.Swap(true) {
				return nil, lock.ErrUnavailable
			}
			return b.silent(ctx)
		}), nil)
		go func() {
			_, _, err := l.Acquire(t.Context(), nil, "k")
			requireOnly(t, lock.ErrUnavailable, err)
		}()
		synctest.Wait()
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: 1500 * time.Millisecond}, "k")
		requireOnly(t, lock.ErrIndeterminate, err)
	})
}

// A grant shows that no other process holds the key, even if it came too late.
func TestLateGrantEndsAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		var granted atomic.Bool
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if granted.Load() {
				return b.silent(ctx)
			}
			lease, err := do()
			if err == nil {
				granted.Store(true)
				time.Sleep(1500 * time.Millisecond)
			}
			return lease, err
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, release(theirs))
		}()
		_, _, err := newLocker(t, b, nil).Acquire(t.Context(), &lock.Policy{TTL: time.Second, Wait: 2 * time.Second}, "k")
		requireOnly(t, lock.ErrIndeterminate, err)
	})
}

// A call that waits behind another call of its process sends nothing. Its error says what the other
// call knows.
func TestSilenceCountsForLaterWaiters(t *testing.T) {
	for name, p := range map[string]lock.Policy{"mutex": {}, "write": {Write: true}, "read": {Read: true}, "permits": {Permits: 1}} {
		for _, answers := range []bool{false, true} { // whether the engine answers at first
			t.Run(fmt.Sprint(name, answers), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := newScripted()
					other := newLocker(t, b.Backend, nil)
					_, held := acquire(t, t.Context(), other, &lock.Policy{Write: p.Write || p.Read, Permits: p.Permits}, "k")
					defer func() { require.NoError(t, release(held)) }()
					l := newLocker(t, b, nil)
					if !answers {
						b.mute()
					}
					ended := make(chan error)
					go func() {
						first := p
						first.Wait = time.Minute
						_, _, err := l.Acquire(t.Context(), &first, "k")
						ended <- err
					}()
					synctest.Wait()
					ask := func(wait time.Duration, try bool) error {
						ctx, cancel := context.WithTimeout(t.Context(), wait)
						defer cancel()
						second := p
						second.Try = try
						return l.Do(ctx, &second, "k", nil)
					}
					requireOnly(t, lock.ErrNotAcquired, ask(2500*time.Millisecond, false))
					b.mute()
					for _, try := range []bool{false, true} {
						err := ask(5*time.Second, try)
						requireOnly(t, lock.ErrUnavailable, err)
						require.Equal(t, !answers || !try, errors.Is(err, context.DeadlineExceeded))
					}
					requireOnly(t, lock.ErrUnavailable, ask(time.Millisecond, false))
					requireOnly(t, lock.ErrIndeterminate, <-ended)
				})
			})
		}
	}
}

// A call whose turn comes as its wait ends does not know more.
func TestSilenceCountsAsTheTurnComes(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.mute()
			l, p := newLocker(t, b, nil), &lock.Policy{Wait: 5 * time.Second}
			concurrently(3, func(int) {
				_, _, err := l.Acquire(t.Context(), p, "k")
				require.NotErrorIs(t, err, lock.ErrNotAcquired)
			})
		})
	}
}

// Another call of this process, or another process, holds or releases the key for long. The engine
// answers all the time, so no waiter's error says that it is unavailable.
func TestWaitBehindAHealthyWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, 900*time.Millisecond) // another process holds "k" there
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			time.Sleep(900 * time.Millisecond)
			return do()
		}
		l := newLocker(t, b, &lock.Options{HandOff: -1})
		var calls sync.WaitGroup
		for _, key := range []string{"k", "own"} {
			calls.Go(func() {
				_, held, err := l.Acquire(t.Context(), &lock.Policy{Wait: 20 * time.Second}, key)
				if key == "k" {
					requireOnly(t, lock.ErrNotAcquired, err)
					return
				}
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				require.NoError(t, release(held))
			})
			synctest.Wait()
			for i := range 120 {
				calls.Go(func() {
					_, held, err := l.Acquire(t.Context(), &lock.Policy{Wait: time.Duration(1+i) * 100 * time.Millisecond}, key)
					held.Release(nil)
					require.NotErrorIs(t, err, lock.ErrUnavailable)
				})
			}
		}
		calls.Wait()
	})
}
