package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// bounded is a scripted engine that bounds how many calls one AcquireAll may have under way.
type bounded struct {
	*scripted
	most int
}

func (b *bounded) AtOnce() int { return b.most }

func newBounded() *bounded { return &bounded{newScripted(), 1000} }

func numbered(n int, p *lock.Policy) []lock.Request {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%03d", i)
	}
	return lock.Requests(p, keys)
}

// Free locks are acquired in the time of a few round trips, and released in so short a time. The
// number of calls at once is bounded, and an engine may lower the bound.
func TestAllAtOnce(t *testing.T) {
	for _, tc := range []struct {
		keys, most int
		trips      time.Duration
	}{
		{1000, 1000, 4}, {1000, 100, 10}, {10, 1, 10}, {3, 1000, 3}, {4, 1000, 1}, {4, -1, 4},
	} {
		bubble(t, func(t *testing.T) {
			b := newBounded()
			b.most = tc.most
			var now, peak atomic.Int64
			trip := func() {
				if n := now.Add(1); n > peak.Load() {
					peak.Store(n)
				}
				time.Sleep(time.Millisecond)
				now.Add(-1)
			}
			b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				trip()
				return do()
			}
			b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
				trip()
				return do()
			}
			l := newLocker(t, b, nil)
			began := time.Now()
			ctx, held, err := l.AcquireAll(t.Context(), numbered(tc.keys, nil)...)
			require.NoError(t, err)
			require.Equal(t, tc.trips*time.Millisecond, time.Since(began))
			require.NoError(t, lock.Check(ctx))
			require.True(t, lock.Owns(ctx, "k000") && lock.Owns(ctx, "k002"))
			began = time.Now()
			require.NoError(t, release(held))
			require.Equal(t, tc.trips*time.Millisecond, time.Since(began))
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.LessOrEqual(t, peak.Load(), int64(256))
			require.EqualValues(t, tc.keys, b.acquires.Load())
			require.EqualValues(t, tc.keys, b.releases.Load())
		})
	}
}

// requireFree fails the test if one of reqs is held.
func requireFree(t *testing.T, l *lock.Locker, reqs []lock.Request) {
	t.Helper()
	for _, r := range reqs {
		_, held := acquire(t, t.Context(), l, &lock.Policy{Try: true}, r.Key)
		require.NoError(t, release(held))
	}
}

// One of a thousand locks is held by another process. The call waits for it, holds the locks before
// it and none after it, and then gets all.
func TestWaitingForOneOfAThousand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine, heard := locktest.New(t), &heard{}
		l, other := engine.Locker(&lock.Options{Observer: heard}), engine.Locker(nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k500")
		reqs := numbered(1000, nil)
		done := make(chan *lock.Hold)
		go func() {
			_, held, err := l.AcquireAll(t.Context(), reqs...)
			assert.NoError(t, err)
			done <- held
		}()
		synctest.Wait()
		for i, r := range reqs {
			_, held, err := other.Acquire(t.Context(), &lock.Policy{Try: true}, r.Key)
			if i <= 500 {
				require.ErrorIs(t, err, lock.ErrNotAcquired, r.Key)
				continue
			}
			require.NoError(t, err, r.Key)
			require.NoError(t, release(held))
		}
		require.NoError(t, release(theirs))
		held := <-done
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Try: true}, "k999")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(held))
		requireFree(t, other, reqs)

		var n [lock.OutageEnded + 1]int
		for _, kind := range heard.kinds() {
			n[kind]++
		}
		require.Equal(t, []int{1000, 1, 1, 1000, 0, 0},
			[]int{n[lock.Acquired], n[lock.Waiting], n[lock.Waited], n[lock.Released], n[lock.Rejected], n[lock.Lost]})
	})
}

// A lock that this process holds is waited for in its place in the order. Meanwhile no later lock
// is held.
func TestManyWithAHolderHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), l, nil, "k005")
		done := make(chan *lock.Hold)
		go func() {
			_, held, err := l.AcquireAll(t.Context(), numbered(20, nil)...)
			assert.NoError(t, err)
			done <- held
		}()
		synctest.Wait()
		asked := b.acquires.Load()
		require.GreaterOrEqual(t, asked, int64(1+5))
		require.LessOrEqual(t, asked, int64(1+19)) // later locks may have been tried at the same moment
		time.Sleep(time.Minute)
		require.Equal(t, asked, b.acquires.Load())
		requireFree(t, l, numbered(20, nil)[6:])
		require.NoError(t, release(theirs))
		require.NoError(t, release(<-done))
		synctest.Wait()
		require.Zero(t, l.Entries())
	})
}

// A wait that ends leaves nothing behind, and its error names the key.
func TestWaitForOneOfManyEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine, heard := locktest.New(t), &heard{}
		l, other := engine.Locker(&lock.Options{Observer: heard}), engine.Locker(nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k050")
		reqs := numbered(100, &lock.Policy{Method: "Shop.Sell", Wait: time.Second})
		began := time.Now()
		_, held, err := l.AcquireAll(t.Context(), reqs...)
		require.Nil(t, held)
		requireOnly(t, lock.ErrNotAcquired, err)
		require.Equal(t, time.Second, time.Since(began))
		var where *lock.Error
		require.ErrorAs(t, err, &where)
		require.Equal(t, "k050 Shop.Sell", where.Key+" "+where.Method)
		synctest.Wait()
		require.Zero(t, l.Active())
		require.Zero(t, l.Entries())
		require.NoError(t, release(theirs))
		requireFree(t, other, reqs)
		kinds := heard.kinds()
		require.Equal(t, []lock.EventKind{lock.Waiting, lock.Rejected}, slices.DeleteFunc(kinds, func(k lock.EventKind) bool {
			return k == lock.Acquired || k == lock.Released
		}))
	})
}

// An answer that is not about who holds the key is final. If there are several, the call returns
// the one that is first in the order.
func TestFirstErrorOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newBounded(), &heard{}
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "k005" {
				time.Sleep(time.Millisecond) // the answer comes after that for k007
			}
			if a.Key == "k005" || a.Key == "k007" {
				return nil, driver.ErrConflict
			}
			return do()
		}
		l := newLocker(t, b, &lock.Options{Observer: heard})
		_, _, err := l.AcquireAll(t.Context(), numbered(20, nil)...)
		requireOnly(t, lock.ErrConflict, err)
		var where *lock.Error
		require.ErrorAs(t, err, &where)
		require.Equal(t, "k005", where.Key)
		require.EqualValues(t, b.acquires.Load()-2, b.releases.Load())
		var want []lock.EventKind
		for range 5 {
			want = append(want, lock.Acquired)
		}
		want = append(want, lock.Rejected)
		for range 5 {
			want = append(want, lock.Released)
		}
		require.Equal(t, want, heard.kinds())
	})
}

// A lock that was granted at the first try, and lost before the call kept it, was never held, and
// is acquired again.
func TestTrialIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newBounded(), &heard{}
		var slow sync.Once
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "k003" {
				slow.Do(func() { time.Sleep(2 * ttl) })
			}
			return do()
		}
		l := newLocker(t, b, &lock.Options{Observer: heard})
		ctx, held, err := l.AcquireAll(t.Context(), numbered(6, &lock.Policy{TTL: ttl, NoRenew: true})...)
		require.NoError(t, err)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
		var began, ended int
		for _, kind := range heard.kinds() {
			switch kind {
			case lock.Acquired, lock.HandedOff:
				began++
			case lock.Lost, lock.Released:
				ended++
			}
		}
		require.Equal(t, began, ended)
	})
}

// Endless conflicts cost only a few commands for each lock: after three rounds the locks are
// acquired one after the other.
func TestConflictsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if !a.Queue && a.Key != "k000" && a.Key > "k001" { // a try without waiting
				return nil, &driver.HeldError{}
			}
			return do()
		}
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), numbered(100, nil)...)
		require.NoError(t, err)
		require.LessOrEqual(t, b.acquires.Load(), int64(4*100))
		require.NoError(t, release(held))
		requireFree(t, newLocker(t, b.scripted.Backend, nil), numbered(100, nil))
	})
}

// The errors of a release are in one order, whichever came first.
func TestManyLostAtTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.onRelease = func(context.Context, uint64, func() error) error { return lock.ErrLost }
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), numbered(10, nil)...)
		require.NoError(t, err)
		err = release(held)
		requireOnly(t, lock.ErrLost, err)
		var want string
		for i := 9; i >= 0; i-- {
			want += fmt.Sprintf("lock: release k%03d: lock lost: the engine answered that this process no longer owns it\n", i)
		}
		require.Equal(t, want, err.Error()+"\n")
	})
}

// Locks of an AcquireAll that have been granted are renewed while the call asks for the others.
func TestSeveralAreRenewedWhileOthersAreAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.most = 16
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(20 * time.Millisecond)
			return do()
		}
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), numbered(1000, &lock.Policy{TTL: time.Second, Wait: 10 * time.Second})...)
		require.NoError(t, err)
		require.EqualValues(t, 1000, b.acquires.Load())
		require.NoError(t, release(held))
	})
}

// The bound of an engine on the calls at once counts locks of all kinds.
func TestBoundOfReleasesOfAllKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.most = 1
		var now, peak atomic.Int64
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			peak.Store(max(peak.Load(), now.Add(1)))
			time.Sleep(time.Millisecond)
			now.Add(-1)
			return do()
		}
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), lock.Request{Key: "a"},
			lock.Request{Policy: &lock.Policy{Read: true}, Key: "b"}, lock.Request{Policy: &lock.Policy{Write: true}, Key: "c"},
			lock.Request{Policy: &lock.Policy{Fair: true}, Key: "d"}, lock.Request{Policy: &lock.Policy{Permits: 2}, Key: "e"})
		require.NoError(t, err)
		require.NoError(t, release(held))
		require.EqualValues(t, 1, peak.Load())
	})
}

// An AcquireAll that fails releases all locks that it has in the time of one release.
func TestSeveralFailInTheTimeOfOneRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "k002" {
				time.Sleep(10 * time.Millisecond)
				return nil, driver.ErrConflict
			}
			return do()
		}
		var heals atomic.Bool
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			if heals.Load() {
				return do()
			}
			<-ctx.Done()
			return ctx.Err()
		}
		l := newLocker(t, b, nil)
		begin := time.Now()
		_, _, err := l.AcquireAll(t.Context(), numbered(6, nil)...)
		require.ErrorIs(t, err, lock.ErrConflict)
		require.LessOrEqual(t, time.Since(begin), 1100*time.Millisecond)
		heals.Store(true)
	})
}
