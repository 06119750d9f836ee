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
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// With a bounded buffer between processes, no item is lost, and none is taken twice.
func TestCondBetweenProcesses(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"mutex": {}, "fair": {Fair: true}, "write": {Write: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				engine := memlock.New()
				const size, items = 3, 60
				buffer, produced, consumed := 0, 0, 0 // under the lock
				var tokens []uint64
				work := func(l *lock.Locker, blocked func() bool, step func()) {
					cond := lock.NewCond(l, "k")
					for done := false; !done; {
						require.NoError(t, l.Do(t.Context(), p, "k", func(ctx context.Context) error {
							for blocked() && consumed < items && produced < items {
								if err := cond.Wait(ctx); err != nil {
									return err
								}
							}
							tokens = append(tokens, tokenOf(t, ctx))
							if done = consumed >= items || produced >= items && buffer == 0 || blocked(); !done {
								step()
							}
							require.NoError(t, lock.Check(ctx))
							return cond.Broadcast(ctx)
						}))
					}
				}
				concurrently(6, func(i int) {
					l := newLocker(t, engine, nil)
					if i%2 == 0 {
						work(l, func() bool { return buffer == size || produced >= items }, func() { buffer++; produced++ })
					} else {
						work(l, func() bool { return buffer == 0 }, func() { buffer--; consumed++ })
					}
				})
				require.Equal(t, produced-consumed, buffer)
				for i := 1; i < len(tokens); i++ {
					require.Less(t, tokens[i-1], tokens[i])
				}
			})
		})
	}
}

// Each signal wakes one call, in the order in which the calls began to wait.
func TestCondWakesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		woken := make(chan int, 5)
		for i := range 5 {
			l := newLocker(t, engine, nil)
			cond := lock.NewCond(l, "k")
			go func() {
				err := l.Do(t.Context(), nil, "k", func(ctx context.Context) error {
					before := tokenOf(t, ctx)
					if err := cond.Wait(ctx); err != nil {
						return err
					}
					require.Greater(t, tokenOf(t, ctx), before)
					require.NoError(t, lock.Check(ctx))
					woken <- i
					return nil
				})
				require.NoError(t, err)
			}()
			time.Sleep(10 * time.Millisecond)
		}
		l := newLocker(t, engine, nil)
		cond := lock.NewCond(l, "k")
		time.Sleep(10 * time.Second) // the calls keep their places in the queue
		for i := range 3 {
			require.NoError(t, l.Do(t.Context(), nil, "k", cond.Signal))
			time.Sleep(3 * time.Second)
			require.Len(t, woken, 1)
			require.Equal(t, i, <-woken)
		}
		require.NoError(t, l.Do(t.Context(), nil, "k", cond.Broadcast))
		time.Sleep(3 * time.Second)
		require.Len(t, woken, 2)
	})
}

// A Wait whose context ends holds the lock again, and does not keep another call from being woken.
func TestCondWaitThatGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		cond := lock.NewCond(l, "k")
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, cond.Wait(short), context.DeadlineExceeded)
		require.NoError(t, lock.Check(ctx))
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(held))

		// When the Wait ends, another call holds the lock, for longer than the method lasts.
		method, end := context.WithCancel(t.Context())
		ctx, held = acquire(t, method, l, nil, "k")
		done := make(chan error)
		go func() { done <- cond.Wait(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, lock.Check(ctx), lock.ErrLost, "the lock is given up")
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		end()
		begin := time.Now()
		err = <-done
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		require.LessOrEqual(t, time.Since(begin), 150*time.Millisecond)
		require.ErrorIs(t, release(held), lock.ErrLost)
		require.NoError(t, release(theirs))
		_, theirs = acquire(t, t.Context(), other, nil, "k")
		require.NoError(t, release(theirs))
	})
}

// events counts events by their kind.
type events struct {
	mu    sync.Mutex
	kinds map[lock.EventKind]int
}

func (e *events) Observe(_ context.Context, event lock.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds[event.Kind]++
}

// The Observer sees that a hold ends when the lock is given up, and that another begins. So its
// counts of holds and of waiters are zero in the end.
func TestCondIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine, heard := memlock.New(), &events{kinds: map[lock.EventKind]int{}}
		l, other := newLocker(t, engine, &lock.Options{Observer: heard}), newLocker(t, engine, nil)
		go func() {
			time.Sleep(time.Second)
			ctx, held := acquire(t, t.Context(), other, nil, "k")
			require.NoError(t, lock.NewCond(other, "k").Signal(ctx))
			time.Sleep(time.Second) // the call that was woken waits for the lock
			require.NoError(t, release(held))
		}()
		require.NoError(t, l.Do(t.Context(), nil, "k", lock.NewCond(l, "k").Wait))
		heard.mu.Lock()
		defer heard.mu.Unlock()
		require.Equal(t, map[lock.EventKind]int{lock.Acquired: 2, lock.Waiting: 1, lock.Waited: 1, lock.Released: 2}, heard.kinds)
	})
}

func TestCondNeedsItsLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		cond := lock.NewCond(l, "k")
		for _, f := range []func(context.Context) error{cond.Wait, cond.Signal, cond.Broadcast} {
			require.ErrorIs(t, f(t.Context()), lock.ErrInvalid)
			ctx, held := acquire(t, t.Context(), l, &lock.Policy{Read: true}, "k")
			require.ErrorIs(t, f(ctx), lock.ErrInvalid)
			require.NoError(t, release(held))
			require.ErrorIs(t, f(ctx), lock.ErrInvalid)
		}
		require.Panics(t, func() { lock.NewCond(newLocker(t, mutexesOnly{memlock.New()}, nil), "k") })
		require.PanicsWithError(t, `lock: cond k: invalid: no backend is named "nope" in Options.Backends; there are none`, func() { lock.NewCond(l, "k", "nope") })
		require.PanicsWithError(t, "lock: cond k: invalid: the Locker is nil; make one with lock.New", func() { lock.NewCond(nil, "k") })
		require.NoError(t, l.Do(t.Context(), nil, "k", cond.Signal), "nobody waits")
	})
}

// Wait in a nested call also gives up the lock of the calls that it re-entered.
func TestCondInANestedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		cond := lock.NewCond(l, "k")
		p := &lock.Policy{Reentrant: true}
		var signalled atomic.Bool
		go func() {
			time.Sleep(time.Second)
			require.NoError(t, other.Do(t.Context(), nil, "k", func(ctx context.Context) error {
				signalled.Store(true)
				return lock.NewCond(other, "k").Signal(ctx)
			}))
		}()
		require.NoError(t, l.Do(t.Context(), p, "k", func(outer context.Context) error {
			before := tokenOf(t, outer)
			err := l.Do(outer, p, "k", cond.Wait)
			require.True(t, signalled.Load())
			require.Greater(t, tokenOf(t, outer), before)
			require.NoError(t, lock.Check(outer))
			return err
		}))
	})
}

// A renewal that is under way when the lock is given up, and is answered "not the owner", does not
// end the Wait.
func TestCondOutlivesARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(ctx context.Context, do func() error) error {
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			return do()
		}
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 3 * time.Second}, "k")
		time.Sleep(1050 * time.Millisecond)
		require.EqualValues(t, 1, b.renewals.Load(), "a renewal is under way")
		go func() {
			time.Sleep(time.Second)
			require.NoError(t, other.Do(t.Context(), nil, "k", lock.NewCond(other, "k").Signal))
		}()
		require.NoError(t, lock.NewCond(l, "k").Wait(ctx))
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// A call that waits for a condition asks the engine about once a second.
func TestCondDoesNotPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		before := b.acquires.Load()
		require.ErrorIs(t, lock.NewCond(l, "k").Wait(limited), context.DeadlineExceeded)
		require.LessOrEqual(t, b.acquires.Load()-before, int64(27))
		require.NoError(t, release(held))
	})
}

// If the method returns while one of its goroutines is in Wait, the lock is not held afterwards:
// nobody would release the lock that Wait takes again.
func TestCondWaitThatOutlivesItsMethod(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"mutex": {}, "write": {Write: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				engine := memlock.New()
				l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
				ctx, held := acquire(t, t.Context(), l, p, "k")
				waited := make(chan error)
				go func() { waited <- lock.NewCond(l, "k").Wait(ctx) }()
				synctest.Wait()
				require.ErrorIs(t, release(held), lock.ErrLost, "it was given up")
				require.ErrorIs(t, <-waited, lock.ErrLost)
				_, _, err := l.Acquire(ctx, nil, "k")
				require.Error(t, err)
				time.Sleep(time.Second)
				require.Zero(t, l.Watched())
				_, theirs := acquire(t, t.Context(), other, &lock.Policy{Try: true, Write: p.Write}, "k")
				require.NoError(t, release(theirs))
			})
		})
	}
}

// If a re-entered call returns while one of its goroutines is in Wait, the outer call holds the
// lock again when Wait ends.
func TestCondWaitThatOutlivesAReentry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		inner, nested := acquire(t, outer, l, reentrant, "k")
		waited := make(chan error)
		go func() { waited <- lock.NewCond(l, "k").Wait(inner) }()
		synctest.Wait()
		require.ErrorIs(t, release(nested), lock.ErrLost)
		require.NoError(t, other.Do(t.Context(), nil, "k", lock.NewCond(other, "k").Signal))
		require.NoError(t, <-waited)
		require.NoError(t, lock.Check(outer))
		require.NoError(t, release(held))
	})
}

// If two goroutines call Wait with one context at once, only one gives up the lock. Otherwise each
// would take the lock again, and only one would be released.
func TestCondWaitsUnderOneContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var queued sync.WaitGroup
		queued.Add(2)
		var first sync.Map
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := do()
			if _, again := first.LoadOrStore(a.ID, true); a.Mode.Kind == driver.Condition && !again {
				queued.Done()
				queued.Wait() // neither goroutine has given up the lock
			}
			return lease, err
		}
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		cond, errs := lock.NewCond(l, "k"), make([]error, 2)
		go func() {
			time.Sleep(time.Second)
			require.NoError(t, other.Do(t.Context(), nil, "k", lock.NewCond(other, "k").Broadcast))
		}()
		concurrently(2, func(i int) { errs[i] = cond.Wait(ctx) })
		require.Condition(t, func() bool { return (errs[0] == nil) != (errs[1] == nil) }, "%v", errs)
		require.ErrorIs(t, errors.Join(errs...), lock.ErrLost)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// A condition may be of a backend that is not in Options.Backends, if the engine resolves its name:
// see driver.Named.
func TestCondOfANamedEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t).Locker(nil)
		require.NoError(t, l.Do(t.Context(), &lock.Policy{Backend: "audit"}, "k", lock.NewCond(l, "k", "audit").Signal))
	})
}

// The method returns, and Close is called, while Wait asks the engine for the lock. Close waits
// until the lock is free again.
func TestCondWaitIsGrantedAsItsMethodReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		asked, answer := make(chan struct{}), make(chan struct{})
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Mode.Kind == 0 && b.acquires.Load() > 1 {
				close(asked)
				<-answer
			}
			return do()
		}
		heard := &events{kinds: map[lock.EventKind]int{}}
		l, other := newLocker(t, b, &lock.Options{Observer: heard}), newLocker(t, b.Backend, nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		waited, closed := make(chan error, 1), make(chan error, 1)
		go func() { waited <- lock.NewCond(l, "k").Wait(ctx) }()
		synctest.Wait()
		require.NoError(t, other.Do(t.Context(), nil, "k", lock.NewCond(other, "k").Signal))
		<-asked
		require.ErrorIs(t, release(held), lock.ErrLost)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(answer)
		require.ErrorIs(t, <-waited, lock.ErrLost)
		require.NoError(t, <-closed)
		_, theirs := acquire(t, t.Context(), other, &lock.Policy{Try: true}, "k")
		require.NoError(t, release(theirs))
		require.Equal(t, map[lock.EventKind]int{lock.Acquired: 2, lock.Released: 2}, heard.kinds)
	})
}
