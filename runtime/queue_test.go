package lock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// G10: the waiters of one process are served in the order in which they came.
func TestFirstComeFirstServed(t *testing.T) {
	for name, handOff := range map[string]time.Duration{"handed on": 0, "one lease each": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, memlock.New(), &lock.Options{HandOff: handOff})
				var served []int
				concurrently(100, func(i int) {
					time.Sleep(time.Duration(i) * time.Microsecond)
					require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error {
						served = append(served, i)
						time.Sleep(time.Millisecond)
						return nil
					}))
				})
				for i := range served {
					require.Equal(t, i, served[i])
				}
			})
		})
	}
}

// S51: a thousand waiters of one process are one waiter at the engine.
func TestThousandWaitersAreOneAtTheEngine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		l := newLocker(t, b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var done atomic.Int64
		for range 1000 {
			go func() {
				_, _, err := l.Acquire(ctx, nil, "k")
				requireOnly(t, lock.ErrNotAcquired, err)
				require.ErrorIs(t, err, context.Canceled)
				done.Add(1)
			}()
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, 999, l.Waiting("k"))
		require.LessOrEqual(t, b.acquires.Load(), int64(3+5), "one a second")
		cancel()
		synctest.Wait()
		require.EqualValues(t, 1000, done.Load())
		require.Zero(t, l.Entries())
		require.NoError(t, release(theirs))
	})
}

// S25: a cancelled waiter leaves the queue at once, wherever it is, and the others keep their
// order.
func TestCancelledWaiterLeavesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan int, 10)
		left := make(chan time.Time, 10)
		for i := range 9 {
			waits := t.Context()
			if i%4 == 0 { // the first, the middle ones and the last
				waits = ctx
			}
			go func() {
				_, held, err := l.Acquire(waits, nil, "k")
				if err != nil {
					left <- time.Now()
					return
				}
				served <- i
				held.Release(nil)
			}()
			synctest.Wait()
		}
		require.Equal(t, 9, l.Waiting("k"))
		began := time.Now()
		cancel()
		synctest.Wait()
		require.Equal(t, 6, l.Waiting("k"))
		require.Len(t, left, 3)
		require.Equal(t, began, <-left)
		require.Empty(t, served)
		require.NoError(t, release(held))
		for _, want := range []int{1, 2, 3, 5, 6, 7} {
			require.Equal(t, want, <-served)
		}
	})
}

// S25, S47, S63: a grant that races with a cancel is passed on, whichever comes first. Nobody waits
// for a free key, and nothing is left.
func TestGrantRacesWithCancel(t *testing.T) {
	for seed := range uint64(1000) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			b := memlock.New()
			lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, &lock.Options{HandOff: -1})}
			inside := &exclusion{t: t}
			// All times are multiples of one, so that grants and cancels coincide.
			ms := func(n int) time.Duration { return time.Duration(random.IntN(n)) * time.Millisecond }
			began := time.Now()
			for i := range 12 {
				start, stay, limit := ms(4), ms(3), ms(12)+time.Millisecond
				l, p := lockers[i%2], &lock.Policy{TTL: ttl}
				if random.IntN(2) == 0 {
					p.Wait = limit
					limit = time.Hour
				}
				go func() {
					time.Sleep(start)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					_, held, err := l.Acquire(ctx, p, "k")
					if err != nil {
						requireOnly(t, lock.ErrNotAcquired, err)
						return
					}
					inside.run(func() { time.Sleep(stay) })
					held.Release(nil)
				}()
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			require.Less(t, time.Since(began), time.Second, "seed %d", seed)
			for _, l := range lockers {
				require.Zero(t, l.Entries(), "seed %d", seed)
			}
			_, held := acquire(t, t.Context(), lockers[0], &lock.Policy{Try: true}, "k")
			require.NoError(t, release(held))
		})
	}
}

// S47: if the call that waits at the engine gives up, the next in the local queue takes over, with
// the same subscription.
func TestNextWaiterTakesOverTheSubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var subscribed atomic.Int64
		b.onSubscribe = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Subscription, error)) (driver.Subscription, error) {
			subscribed.Add(1)
			return do()
		}
		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		l := newLocker(t, b, nil)
		first, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, _, err := l.Acquire(first, nil, "k")
			gone <- err
		}()
		synctest.Wait()
		got := make(chan time.Time)
		go func() {
			_, held := acquire(t, t.Context(), l, nil, "k")
			got <- time.Now()
			held.Release(nil)
		}()
		synctest.Wait()
		cancel()
		requireOnly(t, lock.ErrNotAcquired, <-gone)
		time.Sleep(300 * time.Millisecond)
		require.Zero(t, b.undos.Load(), "the next waiter must take over the place in the engine's queue")
		freed := time.Now()
		require.NoError(t, release(theirs))
		require.Equal(t, freed, <-got)
		require.EqualValues(t, 1, subscribed.Load())
	})
}

// A call that gives up the last place in the engine's queue does not remove the place of a later
// call. Backends tell them apart by their numbers.
func TestPlaceIsGivenUpAsOfBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		var next string
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			next = a.ID
			return do()
		}
		l.GiveUpPlace(b, "k", closing(func() {
			require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		}))
		synctest.Wait()
		require.Len(t, b.undone, 1)
		require.Less(t, serial(t, b.undone[0]), serial(t, next), "the undoing and the one that came meanwhile")
	})
}

// closing is a Subscription that calls a function when it is closed.
type closing func()

func (closing) C() <-chan struct{} { return nil }
func (c closing) Close()           { c() }

func serial(t *testing.T, id string) int {
	t.Helper()
	_, count, _ := strings.Cut(id, ":")
	n, err := strconv.Atoi(count)
	require.NoError(t, err)
	return n
}

// S43, S45, S48: without notices a waiter polls, and gets the key at most a second after it became
// free.
func TestWaitingWithoutNotices(t *testing.T) {
	for name, hook := range map[string]func(context.Context, *driver.Acquisition, func() (driver.Subscription, error)) (driver.Subscription, error){
		"none": func(context.Context, *driver.Acquisition, func() (driver.Subscription, error)) (driver.Subscription, error) {
			return nil, lock.ErrUnavailable
		},
		"lost": func(context.Context, *driver.Acquisition, func() (driver.Subscription, error)) (driver.Subscription, error) {
			return make(neverNotified), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onSubscribe = hook
				other := newLocker(t, b.Backend, nil)
				l := newLocker(t, b, nil)
				_, theirs := acquire(t, t.Context(), other, nil, "k")
				got := make(chan time.Time)
				go func() {
					_, held := acquire(t, t.Context(), l, nil, "k")
					got <- time.Now()
					held.Release(nil)
				}()
				time.Sleep(10*time.Second + time.Millisecond)
				freed := time.Now()
				require.NoError(t, release(theirs))
				require.WithinDuration(t, freed, <-got, time.Second)
				require.LessOrEqual(t, b.acquires.Load(), int64(15))
			})
		})
	}
}

type neverNotified chan struct{}

func (d neverNotified) C() <-chan struct{} { return d }
func (neverNotified) Close()               {}

// S44: the waiter subscribes, then tries again. So it does not miss a release in between.
func TestReleaseBetweenTryAndSubscribe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		b.onSubscribe = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Subscription, error)) (driver.Subscription, error) {
			require.NoError(t, release(theirs))
			return do()
		}
		l := newLocker(t, b, nil)
		began := time.Now()
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.Equal(t, began, time.Now())
		require.NoError(t, release(held))
	})
}

// S46: the death of a holder causes no notice; the end of its lease wakes the waiter.
func TestHolderThatDied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: "dead:1", TTL: 400 * time.Millisecond, Tokens: 1})
		require.NoError(t, err)
		l := newLocker(t, b, nil)
		began := time.Now()
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.GreaterOrEqual(t, time.Since(began), 400*time.Millisecond)
		require.LessOrEqual(t, time.Since(began), 402*time.Millisecond)
		require.NoError(t, release(held))
	})
}

// While the key is known to be held, by this process or another, a Try and the end of a wait are
// answered without a command to the engine.
func TestTryAndWaitAnswerLocally(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		refused := func(p *lock.Policy) {
			t.Helper()
			before, began := b.acquires.Load(), time.Now()
			_, _, err := l.Acquire(t.Context(), p, "k")
			requireOnly(t, lock.ErrNotAcquired, err)
			require.Equal(t, before, b.acquires.Load())
			require.Equal(t, p.Wait, time.Since(began))
		}
		try, patient := &lock.Policy{Try: true}, &lock.Policy{Wait: 50 * time.Millisecond}
		_, held := acquire(t, t.Context(), l, nil, "k")
		refused(try)
		refused(patient)
		require.NoError(t, release(held))

		other := newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k")
		got := make(chan struct{})
		go func() {
			_, held := acquire(t, t.Context(), l, nil, "k")
			held.Release(nil)
			close(got)
		}()
		synctest.Wait()
		refused(try)
		refused(patient)
		require.NoError(t, release(theirs))
		<-got
	})
}

// A Try that finds another goroutine about to ask the engine waits for that answer. It is refused
// if the key was granted to the other, and asks itself if not.
func TestTryWaitsForTheAnswerOnItsWay(t *testing.T) {
	for name, answer := range map[string]error{"taken": nil, "refused": lock.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					first := b.acquires.Load() == 1
					time.Sleep(time.Second)
					if first && answer != nil {
						return nil, answer
					}
					return do()
				}
				l := newLocker(t, b, nil)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, held, err := l.Acquire(t.Context(), nil, "k")
					require.ErrorIs(t, err, answer)
					time.Sleep(time.Minute)
					held.Release(nil)
				}()
				synctest.Wait()
				began := time.Now()
				_, held, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
				if answer == nil {
					requireOnly(t, lock.ErrNotAcquired, err)
					require.Equal(t, time.Second, time.Since(began))
				} else {
					require.NoError(t, err)
					require.NoError(t, release(held))
				}
				<-done
			})
		})
	}
}

func TestNewEntryIsSmall(t *testing.T) { require.LessOrEqual(t, lock.NewEntrySize, uintptr(512)) }
