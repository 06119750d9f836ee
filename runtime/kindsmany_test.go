package lock_test

import (
	"context"
	"flag"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var downgrades = flag.Int("downgrades", 1000, "how many TestDowngradesLetNoWriterIn makes")

// While writers of five processes compete and downgrade, no downgrade lets a writer in before its
// release (CURATOR-276 and CURATOR-621).
func TestDowngradesLetNoWriterIn(t *testing.T) {
	const lockers, goroutines = 5, 4
	times := *downgrades / (lockers * goroutines)
	bubble(t, func(t *testing.T) {
		engine, p := memlock.New(), &lock.Policy{Write: true}
		var writing, done atomic.Int64
		var all []*lock.Locker
		for range lockers {
			all = append(all, newLocker(t, engine, nil))
		}
		concurrently(lockers*goroutines, func(i int) {
			for range times {
				ctx, held, err := all[i%lockers].Acquire(t.Context(), p, "k")
				require.NoError(t, err)
				mine := writing.Add(1)
				require.NoError(t, held.Downgrade(ctx))
				time.Sleep(time.Microsecond)
				if writing.Load() != mine {
					t.Error("a writer is inside next to a hold that was downgraded")
				}
				done.Add(1)
				require.NoError(t, release(held))
			}
		})
		require.EqualValues(t, lockers*goroutines*times, done.Load())
	})
}

// Across eight processes of eight goroutines, locks are granted in the order of arrival.
func TestFairOverProcesses(t *testing.T) {
	const lockers, goroutines = 8, 8
	bubble(t, func(t *testing.T) {
		engine, p := memlock.New(), &lock.Policy{Fair: true}
		var all []*lock.Locker
		for range lockers {
			all = append(all, newLocker(t, engine, nil))
		}
		_, held := acquire(t, t.Context(), all[0], p, "k")
		granted := make(chan int, lockers*goroutines)
		for i := range lockers * goroutines {
			go func() {
				err := all[i*i%lockers].Do(t.Context(), p, "k", func(context.Context) error {
					granted <- i
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait() // the call is in the queue
		}
		require.NoError(t, release(held))
		var order []int
		for range lockers * goroutines {
			order = append(order, <-granted)
		}
		require.IsIncreasing(t, order)
	})
}

// A read lock that was entered again, by nested calls and by siblings that share its lease, is no
// longer renewed once all of them have left (Redisson's pull request 7251).
func TestReenteredReaderIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l, p := newLocker(t, b, nil), &lock.Policy{Read: true, Reentrant: true, TTL: 3 * time.Second}
		ctx := t.Context()
		var all []*lock.Hold
		for range 3 {
			inner, held := acquire(t, ctx, l, p, "k")
			_, sibling := acquire(t, t.Context(), l, p, "k")
			ctx, all = inner, append(all, sibling, held)
		}
		time.Sleep(2 * time.Second)
		require.NotZero(t, b.renewals.Load())
		for i := range all {
			require.NoError(t, release(all[len(all)-1-i]))
		}
		before := b.renewals.Load()
		time.Sleep(time.Minute)
		require.Equal(t, before, b.renewals.Load())
	})
}

// A lease reserves at least one token, however many permits it takes.
func TestTokensOfManyPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			require.Positive(t, a.Tokens)
			return do()
		}
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, &lock.Policy{Permits: 1}, "k")
		done := make(chan error)
		go func() {
			done <- l.Do(t.Context(), &lock.Policy{Permits: 1}, "k", func(context.Context) error { return nil })
		}()
		synctest.Wait()
		_, _, err := l.Acquire(t.Context(), &lock.Policy{Permits: 1_000_000, Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(held))
		require.NoError(t, <-done)
	})
}

// A Try that reads while another call asks the engine shares the lease that the other call gets.
func TestTryToReadDuringARead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if err := wait(ctx, time.Second); err != nil {
				return nil, err
			}
			return do()
		}
		l := newLocker(t, b, nil)
		concurrently(2, func(i int) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			p := &lock.Policy{Read: true, Try: i == 1}
			require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { time.Sleep(time.Second); return nil }))
		})
		require.EqualValues(t, 1, b.acquires.Load())
	})
}
