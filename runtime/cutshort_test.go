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
			return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
		}
	}
	return b
}

// lateCaller calls for k after the first one, with 10 ms left when that gives up.
func lateCaller(t *testing.T, l *lock.Locker, p *lock.Policy, after time.Duration) error {
	go func() {
		first, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _, err := l.Acquire(first, nil, "k")
		requireOnly(t, lock.ErrNotAcquired, err)
	}()
	time.Sleep(after)
	ctx, cancel := context.WithTimeout(t.Context(), 310*time.Millisecond-after)
	defer cancel()
	_, _, err := l.Acquire(ctx, p, "k")
	return err
}

// The first attempt of a call that had waited in the queue is cut short. While it waited the
// engine has said that another holds the key, so the engine is not away.
func TestAnswerCountsForTheNextInTheQueue(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"context": nil, "wait": {Wait: 305 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, slow(t, 50*time.Millisecond), nil)
				err := lateCaller(t, l, p, time.Millisecond)
				requireOnly(t, lock.ErrNotAcquired, err)
				require.Equal(t, p == nil, errors.Is(err, context.DeadlineExceeded))
			})
		})
	}
}

// What the engine said before a call began tells it nothing about an engine that is silent.
func TestAnswerFromBeforeTheCallDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, slow(t, 50*time.Millisecond), nil)
		requireOnly(t, lock.ErrIndeterminate, lateCaller(t, l, nil, 150*time.Millisecond))
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
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
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
			<-ctx.Done()
			return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
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
		require.ErrorContains(t, l.Close(ctx), "close: 1 acquires were still under way: context deadline exceeded")
		require.Error(t, <-ended)
	})
}
