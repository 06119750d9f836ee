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

// lateCaller calls for k by p after another call, whose wait ends 10 ms before its own, with the
// error first.
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

// The first attempt of a call that had waited in the queue is cut short. A moment before the
// engine has said that another holds the key, so the engine is not away.
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

// An answer that is old says nothing about an engine that is silent.
func TestOldAnswerDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := failing(t, 500*time.Millisecond, (*scripted).silent)
		requireOnly(t, lock.ErrIndeterminate, lateCaller(t, newLocker(t, b, nil), nil, lock.ErrIndeterminate, 4*time.Second, 10*time.Millisecond))
	})
}

// Once this process has held the key, the answer from before says nothing about who holds it.
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
		time.Sleep(2 * time.Second) // within which the first has asked again
		require.NoError(t, release(theirs))
		held := <-granted
		b.mute()
		require.NoError(t, release(held))
		requireOnly(t, lock.ErrIndeterminate, <-ended)
	})
}

// failing returns slow(t, a millisecond), whose answers are those of after once so much time is over.
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

// A call's own answer grows old as well: an engine that has been silent since is away, and the
// fallback of Skip does not begin.
func TestOwnAnswerGrowsOld(t *testing.T) {
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

// Whoever keeps its place in the queue of an engine that is away goes on waiting, and is not told
// that the lock was held.
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

// A waiter hears nothing for as long as the other holds the key, but it asks: no answer of an
// engine that is there grows old, also of one that takes its time.
func TestAnswerStaysYoungWhileTheEngineAnswers(t *testing.T) {
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

// The answer to another call grows old while the engine does not answer this one.
func TestAnswerGrowsOldInTheNextAttempt(t *testing.T) {
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

// An engine that has failed since says nothing by the answer that it gave before.
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

// A grant says that no other holds the key, also if it came too late.
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

// A call that waits behind another one of its process asks nothing. It says what the other knows.
func TestSilenceCountsForWhoWaitsBehind(t *testing.T) {
	for name, p := range map[string]lock.Policy{"mutex": {}, "write": {Write: true}, "read": {Read: true}, "permits": {Permits: 1}} {
		for _, answers := range []bool{false, true} { // for a while
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

// Nor does one know more whose turn comes as its wait ends.
func TestSilenceCountsAsTheTurnComes(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.mute()
			l, p := newLocker(t, b, nil), &lock.Policy{Wait: 5 * time.Second}
			together(3, func(int) {
				_, _, err := l.Acquire(t.Context(), p, "k")
				require.NotErrorIs(t, err, lock.ErrNotAcquired)
			})
		})
	}
}

// A call of this process holds the key, or releases it, for as long as it likes; and another process,
// for which this one waits. The engine is there all the time.
func TestWhoWaitsBehindAHealthyWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, 900*time.Millisecond) // by which "k" is held
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
