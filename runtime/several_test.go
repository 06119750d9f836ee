package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

func requests(keys ...string) []lock.Request {
	reqs := make([]lock.Request, len(keys))
	for i, k := range keys {
		reqs[i].Key = k
	}
	return reqs
}

// G13: the order is by backend, then by key, byte by byte. A key that is named twice is acquired
// once, and the caller's slice is not changed.
func TestAcquireAllTakesInOneOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, eu := newScripted(), newScripted()
		l := newLocker(t, b, &lock.Options{Backends: map[string]driver.Backend{"eu": eu}})
		eu.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			require.Len(t, seen(b, &b.keys), 4, "the other backend comes first")
			return do()
		}
		reqs := append(requests("b", "a", "a2", "B", "a", "b"),
			lock.Request{Policy: &lock.Policy{Backend: "eu"}, Key: "a"},
			lock.Request{Policy: &lock.Policy{Backend: "eu"}, Key: "A"})
		_, held, err := l.AcquireAll(t.Context(), reqs...)
		require.NoError(t, err)
		require.Equal(t, []string{"B", "a", "a2", "b"}, seen(b, &b.keys))
		require.Equal(t, []string{"A", "a"}, seen(eu, &eu.keys))
		require.Equal(t, "b", reqs[0].Key)
		require.NoError(t, release(held))
		require.EqualValues(t, 4, b.releases.Load())
		require.EqualValues(t, 2, eu.releases.Load())
	})
}

// S99: many calls name their keys in opposite orders, without a deadlock.
func TestAcquireAllInOppositeOrders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		a, b := &exclusion{t: t}, &exclusion{t: t}
		concurrently(40, func(i int) {
			keys := []string{"a", "b"}
			if i%2 == 0 {
				keys = []string{"b", "a"}
			}
			_, held, err := l.AcquireAll(t.Context(), requests(keys...)...)
			require.NoError(t, err)
			a.run(func() { b.run(func() { time.Sleep(time.Millisecond) }) })
			require.NoError(t, release(held))
		})
	})
}

// S21: if one lock can't be had, all others are released, and the error names its key.
func TestAcquireAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), l, nil, "b")
		reqs := requests("a", "b", "c")
		reqs[1].Policy = &lock.Policy{Method: "Shop.Move", Try: true}
		ctx, held, err := l.AcquireAll(t.Context(), reqs...)
		require.Nil(t, held)
		require.Equal(t, t.Context(), ctx)
		requireOnly(t, lock.ErrNotAcquired, err)
		var where *lock.Error
		require.ErrorAs(t, err, &where)
		require.Equal(t, lock.Error{Op: "acquire", Method: "Shop.Move", Key: "b", Err: where.Err}, *where)
		require.Equal(t, []string{"b", "a"}, seen(b, &b.keys))
		require.EqualValues(t, 1, b.releases.Load())
		require.Equal(t, 1, l.Entries())
		require.NoError(t, release(theirs))
	})
}

// Each policy's wait counts from the call, not from its turn in the order.
func TestAcquireAllWithSeveralWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		for _, tc := range []struct{ freeA, want time.Duration }{
			{2 * time.Second, 3 * time.Second}, // then b's wait of 3 s ends
			{time.Hour, 5 * time.Second},       // a's own wait ends
			{4 * time.Second, 4 * time.Second}, // b's wait is over before its turn
		} {
			_, a := acquire(t, t.Context(), l, nil, "a")
			_, b := acquire(t, t.Context(), l, nil, "b")
			free := time.AfterFunc(tc.freeA, func() { a.Release(nil) })
			began := time.Now()
			_, _, err := l.AcquireAll(t.Context(),
				lock.Request{Policy: &lock.Policy{Wait: 5 * time.Second}, Key: "a"},
				lock.Request{Policy: &lock.Policy{Wait: 3 * time.Second}, Key: "b"})
			requireOnly(t, lock.ErrNotAcquired, err)
			require.Equal(t, tc.want, time.Since(began))
			if free.Stop() {
				a.Release(nil)
			}
			b.Release(nil)
		}
	})
}

// If the innermost acquisition took several locks, Token has no answer, and TokenOf has one for
// each key.
func TestTokensOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		outer, first := acquire(t, t.Context(), l, nil, "z")
		ctx, held, err := l.AcquireAll(outer, requests("a", "b")...)
		require.NoError(t, err)
		token, ok := lock.Token(ctx)
		require.False(t, ok)
		require.Zero(t, token)
		for _, key := range []string{"a", "b", "z"} {
			_, ok := lock.TokenOf(ctx, key)
			require.True(t, ok, key)
			require.True(t, lock.Owns(ctx, key))
		}
		_, ok = lock.TokenOf(ctx, "c")
		require.False(t, ok)
		nested, inner := acquire(t, ctx, l, nil, "c")
		c, _ := lock.TokenOf(nested, "c")
		require.Equal(t, c, tokenOf(t, nested))
		inner.Release(nil)
		require.NoError(t, release(held))
		_, ok = lock.TokenOf(ctx, "a")
		require.False(t, ok)
		require.NoError(t, release(first))

		// One key that is named twice counts as one.
		ctx, held, err = l.AcquireAll(t.Context(), requests("a", "a")...)
		require.NoError(t, err)
		tokenOf(t, ctx)
		require.NoError(t, release(held))
	})
}

// The loss of any of the locks ends the method's context, and Check covers the whole chain.
func TestLossOfOneOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, lost := range []string{"a", "b", "z"} {
			b := newScripted()
			l := newLocker(t, b, nil)
			b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				lease, err := do()
				if err == nil && a.Key == lost {
					lease = &disowned{lease}
				}
				return lease, err
			}
			outer, first := acquire(t, t.Context(), l, renewed, "z")
			ctx, held, err := l.AcquireAll(outer, lock.Request{Policy: renewed, Key: "a"}, lock.Request{Policy: renewed, Key: "b"})
			require.NoError(t, err)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			requireOnly(t, lock.ErrLost, lock.Check(ctx))
			require.Equal(t, lost == "z", lock.Check(outer) != nil)
			require.Equal(t, lost != "z", errors.Is(release(held), lock.ErrLost))
			require.Equal(t, lost == "z", errors.Is(release(first), lock.ErrLost))
		}
	})
}

// disowned is a lease of which the engine answers ErrLost at its first renewal.
type disowned struct{ driver.Lease }

func (disowned) Renew(context.Context, time.Duration) error { return lock.ErrLost }

// One lock is lost while the call waits for another. The method has not run, so all locks are
// acquired anew.
func TestLossWhileWaitingForAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), l, nil, "b")
		time.AfterFunc(3*ttl, func() { theirs.Release(nil) })
		ctx, held, err := l.AcquireAll(t.Context(),
			lock.Request{Policy: &lock.Policy{TTL: ttl, NoRenew: true}, Key: "a"}, lock.Request{Key: "b"})
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		require.NoError(t, lock.Check(ctx))
		require.Equal(t, []string{"b", "a", "b", "a", "b"}, seen(b, &b.keys))
		require.NoError(t, release(held))
	})
}

// If the lock is lost each time, because its lease is not renewed for so long, the call fails.
func TestLeaseShorterThanTheWaitForAnother(t *testing.T) {
	for _, p := range []*lock.Policy{{TTL: ttl}, {TTL: ttl, NoRenew: true}, {TTL: ttl, Max: ttl / 10}} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			ctx, cancel := context.WithCancel(t.Context())
			for range 2 {
				other := newLocker(t, b.Backend, nil)
				go func() {
					for ctx.Err() == nil {
						_ = other.Do(ctx, nil, "b", func(context.Context) error { time.Sleep(3 * ttl / 2); return nil })
					}
				}()
			}
			time.Sleep(ttl)
			l := newLocker(t, b, nil)
			_, held, err := l.AcquireAll(t.Context(), lock.Request{Policy: p, Key: "a"}, lock.Request{Key: "b"})
			cancel()
			if !p.NoRenew && p.Max == 0 {
				require.NoError(t, err)
				require.NoError(t, release(held))
			} else {
				requireOnly(t, lock.ErrNotAcquired, err)
				require.ErrorContains(t, err, "lock: acquire a: not acquired: its lease, which is not renewed")
				require.Equal(t, []string{"a", "b", "a", "b", "a", "b", "a", "b"}, slices.Compact(seen(b, &b.keys)))
			}
			time.Sleep(10 * ttl)
			_, held = acquire(t, t.Context(), l, &lock.Policy{Try: true}, "a")
			require.NoError(t, release(held))
		})
	}
}

// The same if nobody was told of the loss: the clock shows it when the last lock is acquired.
func TestLeaseOverAsTheLastIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lossNotifier{scripted: newScripted()}
		l, other := newLocker(t, b, nil), newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), other, renewed, "b")
		done := make(chan struct{})
		go func() {
			defer close(done)
			ctx, both, err := l.AcquireAll(t.Context(), lock.Request{Policy: renewed, Key: "a"}, lock.Request{Policy: renewed, Key: "b"})
			if assert.NoError(t, err) {
				assert.NoError(t, lock.Check(ctx))
				assert.NoError(t, release(both))
			}
		}()
		time.Sleep(time.Millisecond)
		first := b.last()
		first.mu.Lock()
		first.earlier = ttl
		first.mu.Unlock()
		require.NoError(t, release(held))
		<-done
	})
}

// A lock that the chain holds already is re-entered. If its policy is not reentrant, the call fails
// before it sends anything or waits.
func TestAcquireAllInsideALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		outer, first := acquire(t, t.Context(), l, nil, "b")
		outerToken := tokenOf(t, outer)
		_, theirs := acquire(t, t.Context(), l, nil, "a")
		sent := b.acquires.Load()
		_, _, err := l.AcquireAll(outer, requests("a", "b")...)
		requireOnly(t, lock.ErrDeadlock, err)
		require.Equal(t, sent, b.acquires.Load())
		require.NoError(t, release(theirs))

		reqs := requests("a", "b")
		reqs[1].Policy = &lock.Policy{Reentrant: true}
		ctx, held, err := l.AcquireAll(outer, reqs...)
		require.NoError(t, err)
		again, _ := lock.TokenOf(ctx, "b")
		require.Equal(t, outerToken, again)
		require.NoError(t, release(held))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, lock.Check(outer))
		require.NoError(t, outer.Err())
		require.NoError(t, release(first))
	})
}

// A context of re-entries alone ends with its call too, and leaves nothing with the outer one.
func TestAcquireAllOfReentriesEndsItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		outer, first, err := l.AcquireAll(t.Context(), requests("a", "b")...)
		require.NoError(t, err)
		reqs := requests("a", "b")
		reqs[0].Policy, reqs[1].Policy = &lock.Policy{Reentrant: true}, &lock.Policy{Reentrant: true}
		ctx, held, err := l.AcquireAll(outer, reqs...)
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		require.NoError(t, release(held))
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, outer.Err())
		require.NoError(t, release(first))
	})
}

// If the call is cancelled while it waits for the second lock, the first is released.
func TestAcquireAllCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		_, theirs := acquire(t, t.Context(), l, nil, "b")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, _, err := l.AcquireAll(ctx, requests("a", "b")...)
			done <- err
		}()
		synctest.Wait()
		require.Equal(t, 2, l.Entries())
		cancel()
		err := <-done
		requireOnly(t, lock.ErrNotAcquired, err)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait() // the release continues after the call has returned
		require.Equal(t, 1, l.Entries())
		require.NoError(t, release(theirs))
	})
}

// newHung returns a backend whose releases hang for as long as hung is true.
func newHung() (b *scripted, hung *atomic.Bool) {
	b, hung = newScripted(), new(atomic.Bool)
	hung.Store(true)
	b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
		if hung.Load() {
			return hang(ctx, do)
		}
		return do()
	}
	return b, hung
}

// A call that has no time left does not wait for the release of the locks that it has.
func TestSeveralGiveUpInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, hung := newHung()
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "m" && hung.Load() {
				<-ctx.Done()
				return nil, &driver.HeldError{}
			}
			return do()
		}
		l := newLocker(t, b, nil)
		began := time.Now()
		p := &lock.Policy{Wait: time.Second}
		_, _, err := l.AcquireAll(t.Context(), lock.Request{Key: "k", Policy: p}, lock.Request{Key: "m", Policy: p})
		requireOnly(t, lock.ErrNotAcquired, err)
		require.Equal(t, time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, _, err = l.AcquireAll(ctx, lock.Request{Key: "k2"}, lock.Request{Key: "m"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))

		hung.Store(false)
		_, held, err := l.AcquireAll(t.Context(), lock.Request{Key: "k"}, lock.Request{Key: "k2"}, lock.Request{Key: "m"})
		require.NoError(t, err)
		require.NoError(t, release(held))
	})
}

// A call that gives up with time left waits for that release no longer than its shortest wait.
func TestSeveralGiveUpWithinTheirWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const shortest = 500 * time.Millisecond
		b, hung := newHung()
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "c")
		began := time.Now()
		_, _, err := l.AcquireAll(t.Context(), // the shortest wait of all counts, as when waiting for a lock
			lock.Request{Key: "a", Policy: &lock.Policy{Wait: time.Minute}},
			lock.Request{Key: "b", Policy: &lock.Policy{Wait: shortest}},
			lock.Request{Key: "c", Policy: &lock.Policy{Try: true}})
		requireOnly(t, lock.ErrNotAcquired, err)
		require.Equal(t, shortest+100*time.Millisecond, time.Since(began))
		hung.Store(false)
		for _, key := range []string{"a", "b"} {
			_, held := acquire(t, t.Context(), l, nil, key)
			require.NoError(t, release(held))
		}
		require.NoError(t, release(theirs))
	})
}
