package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

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

// Nobody takes the turn of a waiter that Close has cut short.
func TestCloseEndsTheQueueFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		l, silent := lock.New(b, nil), atomic.Bool{}
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if silent.Load() {
				return b.silent(ctx)
			}
			return do()
		}
		const keys = 5000
		ended := make(chan error, 2*keys)
		for i := range keys {
			key := fmt.Sprint("k", i)
			_, theirs := acquire(t, t.Context(), other, nil, key)
			defer func() { require.NoError(t, release(theirs)) }()
			for range 2 {
				go func() {
					_, _, err := l.Acquire(context.Background(), &lock.Policy{Wait: time.Hour}, key)
					ended <- err
				}()
			}
		}
		synctest.Wait()
		silent.Store(true)
		time.Sleep(2 * time.Second)
		asked := b.acquires.Load()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
		assert.Equal(t, asked, b.acquires.Load(), "somebody asks again")
		for range 2 * keys {
			requireOnly(t, lock.ErrClosed, <-ended)
		}
	})
}
