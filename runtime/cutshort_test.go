package lock_test

import (
	"context"
	"errors"
	"fmt"
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

// silent is an engine that does not answer before ctx ends.
func (s *scripted) silent(ctx context.Context) (driver.Lease, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
}

// lateCaller calls for k by p after another call, whose wait ends 10 ms before its own.
func lateCaller(t *testing.T, l *lock.Locker, p *lock.Policy, wait, after time.Duration) error {
	go func() {
		first, cancel := context.WithTimeout(t.Context(), wait-10*time.Millisecond)
		defer cancel()
		_, _, err := l.Acquire(first, nil, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
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
				err := lateCaller(t, l, p, 310*time.Millisecond, 150*time.Millisecond)
				requireOnly(t, lock.ErrNotAcquired, err)
				require.Equal(t, p == nil, errors.Is(err, context.DeadlineExceeded))
			})
		})
	}
}

// An answer that is old says nothing about an engine that is silent.
func TestOldAnswerDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, 50*time.Millisecond)
		answer, began := b.onAcquire, time.Now()
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if time.Since(began) > 500*time.Millisecond {
				return b.silent(ctx)
			}
			return answer(ctx, a, do)
		}
		requireOnly(t, lock.ErrIndeterminate, lateCaller(t, newLocker(t, b, nil), nil, 4*time.Second, 10*time.Millisecond))
	})
}

// Once this process has held the key, the answer from before says nothing about who holds it.
func TestAnswerEndsWithAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var silent atomic.Bool
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if !silent.Load() {
				return do()
			}
			return b.silent(ctx)
		}
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
		silent.Store(true)
		require.NoError(t, release(held))
		requireOnly(t, lock.ErrIndeterminate, <-ended)
	})
}

// Who waits while nothing is under way is told the same.
func TestCloseTellsEachWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			l, ended := lock.New(slow(t, time.Millisecond), nil), make(chan error)
			go func() {
				_, _, err := l.Acquire(t.Context(), nil, "k")
				ended <- err
			}()
			time.Sleep(100 * time.Millisecond)
			go func() { requireOnly(t, lock.ErrClosed, <-ended) }()
			require.NoError(t, l.Close(t.Context()))
			synctest.Wait()
		}
	})
}

// Close does not wait until an engine that has become silent answers a waiter.
func TestCloseCutsAWaiterShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, time.Millisecond)
		answer := b.onAcquire
		var silent atomic.Bool
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if !silent.Load() {
				return answer(ctx, a, do)
			}
			return b.silent(ctx)
		}
		l := lock.New(b, nil)
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), nil, "k")
			ended <- err
		}()
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		silent.Store(true)
		time.Sleep(2 * time.Second) // the waiter asks once a second
		began := time.Now()
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		requireOnly(t, lock.ErrClosed, <-ended)
		require.NoError(t, <-closed)
		require.Less(t, time.Since(began), time.Second)
		require.NotZero(t, b.undos.Load())
	})
}

// The error of Close tells locks from acquires to which the engine has not answered.
func TestCloseTellsAcquiresFromHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := lock.New(slow(t, time.Minute), nil)
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: time.Hour}, "k")
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, l.Close(ctx), "close: 1 acquires or releases were still under way: context deadline exceeded")
		require.Error(t, <-ended)
	})
}

// An acquire beside a hold is not counted as held; each of those that read together is.
func TestCloseCountsHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l, read := lock.New(b, nil), &lock.Policy{Read: true}
		_, first := acquire(t, t.Context(), l, read, "a")
		_, second := acquire(t, t.Context(), l, read, "a")
		b.onAcquire = slow(t, time.Minute).onAcquire
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: time.Hour}, "k")
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, l.Close(ctx), "close: 2 locks were still held (a) and 1 acquires or releases under way: context deadline exceeded")
		require.Error(t, release(first))
		require.Error(t, release(second))
		require.Error(t, <-ended)
	})
}
