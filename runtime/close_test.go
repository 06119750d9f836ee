package lock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestClosedLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := lock.New(b, nil)
		require.NoError(t, l.Close(t.Context()))
		require.NoError(t, l.Close(t.Context()))
		require.EqualValues(t, 1, b.closes.Load())
		_, _, err := l.Acquire(t.Context(), nil, "k")
		requireOnly(t, lock.ErrClosed, err)
		_, _, err = l.AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Key: "b"})
		requireOnly(t, lock.ErrClosed, err)
		require.Zero(t, b.acquires.Load())
	})
}

// G12: Close waits for the holds. Meanwhile a method that runs may re-enter its lock, but gets no
// other lock.
func TestCloseWaitsForHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		closed := make(chan time.Time)
		go func() {
			require.NoError(t, l.Close(t.Context()))
			closed <- time.Now()
		}()
		time.Sleep(time.Second)
		_, _, err := l.Acquire(ctx, nil, "new")
		requireOnly(t, lock.ErrClosed, err)
		_, inner := acquire(t, ctx, l, &lock.Policy{Reentrant: true}, "k")
		time.Sleep(time.Second)
		require.NoError(t, release(inner))
		time.Sleep(time.Second)
		require.NoError(t, lock.Check(ctx))
		ended := time.Now()
		require.NoError(t, release(held))
		require.Equal(t, ended, <-closed)
	})
}

// S5, G12: when Close may wait no longer, it ends the holds that are left and releases their locks
// at the engine.
func TestCloseEndsHoldsThatAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := lock.New(b, nil)
		ctx, held := acquire(t, t.Context(), l, nil, "k")
		bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := l.Close(bounded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 lock was still held")
		<-ctx.Done()
		requireOnly(t, lock.ErrLost, context.Cause(ctx))
		requireOnly(t, lock.ErrLost, lock.Check(ctx))
		_, _, err = l.Acquire(ctx, &lock.Policy{Reentrant: true}, "k")
		requireOnly(t, lock.ErrLost, err)
		require.EqualValues(t, 1, b.releases.Load())
		requireOnly(t, lock.ErrLost, release(held))
		require.Zero(t, l.Entries())
		synctest.Wait()
		require.EqualValues(t, 1, b.releases.Load(), "nothing is asked of a Backend that is closed")

		other := newLocker(t, b.Backend, nil)
		_, held = acquire(t, t.Context(), other, &lock.Policy{Try: true}, "k")
		require.NoError(t, release(held))
		require.NoError(t, l.Close(t.Context()))
	})
}

// A second Close waits for the first, but no longer than its own context lasts.
func TestCloseAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := lock.New(newScripted(), nil)
		_, held := acquire(t, t.Context(), l, &lock.Policy{Method: "Shop.Sell"}, "k")
		first := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() { first <- l.Close(ctx) }()
		synctest.Wait()
		bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, l.Close(bounded), context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.NoError(t, l.Close(context.Background()))
		require.Equal(t, 10*time.Second, time.Since(begin))
		err := <-first
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 lock was still held (k by Shop.Sell)")
		requireOnly(t, lock.ErrLost, release(held))
		require.NoError(t, l.Close(bounded), "all is closed")
	})
}

// Waiters get ErrClosed at once: those in the local queue, the one that waits at the engine, and
// those queued behind it.
func TestCloseWakesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		other := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "theirs")
		l := lock.New(b, nil)
		_, ours := acquire(t, t.Context(), l, nil, "ours")
		done := make(chan error)
		for range 3 {
			for _, key := range []string{"theirs", "ours"} {
				go func() {
					_, _, err := l.Acquire(t.Context(), nil, key)
					done <- err
				}()
			}
		}
		synctest.Wait()
		began := time.Now()
		go func() { done <- l.Close(t.Context()) }()
		for range 6 {
			requireOnly(t, lock.ErrClosed, <-done)
		}
		require.Equal(t, began, time.Now())
		require.NoError(t, release(ours))
		require.NoError(t, <-done)
		require.Zero(t, l.Entries())
		require.NoError(t, release(theirs))
	})
}

// No call joins the queue while Close runs, to wait there for the holder.
func TestCloseRacesWithWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 300 {
			l := lock.New(memlock.New(), nil)
			_, held := acquire(t, t.Context(), l, nil, "k")
			began := time.Now()
			time.AfterFunc(time.Second, func() { held.Release(nil) })
			concurrently(9, func(i int) {
				if i == 4 {
					require.NoError(t, l.Close(t.Context()))
					return
				}
				_, _, err := l.Acquire(t.Context(), nil, "k")
				requireOnly(t, lock.ErrClosed, err)
				require.Equal(t, began, time.Now())
			})
		}
	})
}

// A grant that comes after Close has stopped waiting is released: nobody would renew it or end its
// context.
func TestGrantAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		grant := make(chan struct{})
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			<-grant
			return do()
		}
		l := lock.New(b, nil)
		done := make(chan error)
		go func() {
			_, held, err := l.Acquire(context.Background(), nil, "k")
			require.Nil(t, held)
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Close(ctx), context.Canceled)
		close(grant)
		requireOnly(t, lock.ErrClosed, <-done)
		require.EqualValues(t, 1, b.releases.Load())
		require.Zero(t, l.Entries())
	})
}

// If Close and a release come at the same instant, the key is released once, and the method is
// never told that another owns it.
func TestCloseRacesWithRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			b := newScripted()
			l := lock.New(b, nil)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			start := make(chan struct{})
			go func() {
				<-start
				l.Close(ctx)
			}()
			concurrently(100, func(i int) {
				_, held := acquire(t, t.Context(), l, nil, string(rune('A'+i)))
				time.Sleep(time.Second)
				if i == 0 {
					close(start)
				}
				if err := release(held); err != nil {
					requireOnly(t, lock.ErrLost, err)
					require.ErrorContains(t, err, "Locker was closed")
				}
			})
			l.Close(t.Context())
			require.Zero(t, l.Entries())
		}
	})
}

// While Close ends one hold, a method releases another one. Close does not release that one a
// second time.
func TestCloseDuringARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := lock.New(b, nil)
		holds := map[string]*lock.Hold{}
		var first, second string
		// Close has listed the holds, and now ends the first of them.
		ending := func(key string) {
			if first != "" {
				return
			}
			first, second = key, map[string]string{"a": "b", "b": "a"}[key]
			require.NoError(t, release(holds[second]))
		}
		b.onSubscribe = func(_ context.Context, a *driver.Acquisition, do func() (driver.Subscription, error)) (driver.Subscription, error) {
			s, err := do()
			return &watched{s, func() { ending(a.Key) }}, err
		}
		other := newLocker(t, b.Backend, nil)
		for _, key := range []string{"a", "b"} { // a call that had to wait has a subscription
			_, theirs := acquire(t, t.Context(), other, nil, key)
			time.AfterFunc(time.Second, func() { theirs.Release(nil) })
			_, holds[key] = acquire(t, t.Context(), l, nil, key)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Close(ctx), context.Canceled)
		require.ElementsMatch(t, []string{first, second}, seen(b, &b.freed))
		require.ErrorIs(t, release(holds[first]), lock.ErrLost)
	})
}

// watched calls closing when it is closed.
type watched struct {
	driver.Subscription
	closing func()
}

func (w *watched) Close() {
	w.closing()
	w.Subscription.Close()
}

// Close finishes the clean-up, as far as its context allows.
func TestCloseFinishesCleaningUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		healed := time.Now().Add(5 * time.Second)
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			if time.Now().Before(healed) {
				return errors.New("CLUSTERDOWN")
			}
			return do()
		}
		l := lock.New(b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		require.NoError(t, l.Close(t.Context()))
		require.WithinDuration(t, healed, time.Now(), time.Second)

		_, err := b.Backend.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: "x:1", TTL: time.Second, Tokens: 1})
		require.NoError(t, err)
	})
}

// An engine that never answers does not keep Close waiting without end.
func TestCloseGivesUpCleaningUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error { return hang(ctx, do) }
		l := lock.New(b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 locks, or requests for one, could not be given back")
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

// Each clean-up task is handed to its backend at least once, even if Close has no time for it: a
// backend that other Lockers share may finish it alone.
func TestCloseTriesEachTask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		b := newScripted()
		l := lock.New(b, nil)
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, _ func() (driver.Lease, error)) (driver.Lease, error) {
			<-ctx.Done()
			return nil, lock.ErrIndeterminate
		}
		tries := make(map[string]int)
		var mu sync.Mutex
		b.onUndo = func(ctx context.Context, a *driver.Acquisition) error {
			mu.Lock()
			tries[a.Key]++
			mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}
		for i := range n {
			unknown, stop := context.WithTimeout(t.Context(), time.Millisecond)
			_, _, err := l.Acquire(unknown, nil, strconv.Itoa(i))
			stop()
			require.Error(t, err)
		}
		began := time.Now()
		require.ErrorContains(t, l.Close(expired()), "100 locks, or requests for one, could not be given back")
		require.Less(t, time.Since(began), 1200*time.Millisecond)
		require.Len(t, tries, n)
	})
}

// If its context has ended, Close does not wait for a task that failed to be tried again.
func TestCloseWaitsForNoSecondTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(context.Context, uint64, func() error) error { return errors.New("CLUSTERDOWN") }
		l := lock.New(b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, release(held))
		time.Sleep(3 * time.Second) // by now, half a second passes between two tries
		began := time.Now()
		require.ErrorContains(t, l.Close(expired()), "1 locks, or requests for one, could not be given back")
		require.Equal(t, time.Second, time.Since(began))
	})
}

// silent is an Observer that, when a lock is lost, does not return until goOn is closed.
type silent struct{ heard, goOn chan struct{} }

func (s silent) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Lost {
		close(s.heard)
		<-s.goOn
	}
}

// G12: an idle lease whose time is over as Close begins is released before the backend is closed.
func TestCloseAsAnIdleLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			if err := wait(ctx, time.Millisecond); err != nil {
				return err
			}
			return do()
		}
		watched := silent{make(chan struct{}), make(chan struct{})}
		l, other := newLocker(t, b, &lock.Options{Observer: watched}), newLocker(t, b.Backend, nil)
		cycle(t, l, sticky, "idle")
		time.Sleep(lock.Margin(stickyFor)) // so that both leases end at once
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: stickyFor, NoRenew: true}, "lost")
		<-watched.heard
		require.ErrorIs(t, release(held), lock.ErrLost)
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		time.Sleep(time.Second) // nothing else is left to release
		close(watched.goOn)
		require.NoError(t, <-closed)
		cycle(t, other, &lock.Policy{Try: true}, "idle")
	})
}
