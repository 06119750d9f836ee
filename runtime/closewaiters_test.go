package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A waiter that has no request under way gets ErrClosed too.
func TestCloseEndsEachWaiter(t *testing.T) {
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

// Close does not wait for the answer to a waiter's request if the engine has become silent.
func TestCloseEndsAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, time.Millisecond)
		l := lock.New(b, nil)
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), nil, "k")
			ended <- err
		}()
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		b.mute()
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

// Close does not wait for it either if the waiter took over the turn of a call whose wait had
// ended.
func TestCloseEndsAWaiterThatTookOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := slow(t, time.Millisecond)
		l := lock.New(b, nil)
		go func() { _, _, _ = l.Acquire(t.Context(), &lock.Policy{Wait: 3 * time.Second}, "k") }()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() {
			_, _, err := l.Acquire(context.Background(), &lock.Policy{Wait: time.Hour}, "k")
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		b.mute()
		time.Sleep(time.Minute) // most of this time the second call has the turn, and gets no answer
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		requireOnly(t, lock.ErrClosed, <-ended)
		require.NotZero(t, b.undos.Load())
	})
}

// Close's error counts held locks and acquires without an answer separately.
func TestCloseNamesAcquires(t *testing.T) {
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
		require.ErrorContains(t, l.Close(ctx), "close: 1 acquire or release was still under way: context deadline exceeded")
		require.Error(t, <-ended)
	})
}

// Close's error does not count an acquire as a held lock, and counts each reader that shares a
// lease.
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
		require.ErrorContains(t, l.Close(ctx), "close: 2 locks were still held (a) and 1 acquire or release under way: context deadline exceeded")
		require.Error(t, release(first))
		require.Error(t, release(second))
		require.Error(t, <-ended)
	})
}

// No call takes the turn of a waiter that Close has ended.
func TestCloseEndsTheQueueFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		other := newLocker(t, b.Backend, nil)
		l := lock.New(b, nil)
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
		b.mute()
		time.Sleep(2 * time.Second)
		asked := b.acquires.Load()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
		assert.Equal(t, asked, b.acquires.Load(), "an acquire was sent during Close")
		for range 2 * keys {
			requireOnly(t, lock.ErrClosed, <-ended)
		}
	})
}

// A lock that is granted when Close has no time left is released. The Observer sees that the call
// was rejected, and no hold.
func TestGrantAfterCloseIsNoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newScripted(), &events{kinds: map[lock.EventKind]int{}}
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(5 * time.Second)
			return do()
		}
		l, ended := lock.New(b, &lock.Options{Observer: heard}), make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), nil, "k")
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, l.Close(ctx))
		requireOnly(t, lock.ErrClosed, <-ended)
		require.Equal(t, map[lock.EventKind]int{lock.Rejected: 1}, heard.kinds)
	})
}
