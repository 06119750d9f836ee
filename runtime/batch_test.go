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

// batchBackend is a scripted engine that acquires and releases many keys in one call.
type batchBackend struct {
	*scripted
	callTime           time.Duration // how long a call takes
	asked, freedAtOnce []int         // the number of keys of each call
	breakContract      bool          // return results that break the contract
	calls              atomic.Int64
}

func newBatchBackend() *batchBackend {
	return &batchBackend{scripted: newScripted(), callTime: time.Millisecond}
}

func (b *batchBackend) AtOnce() int { return 1 }

func (b *batchBackend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	b.calls.Add(1)
	b.mu.Lock()
	b.asked = append(b.asked, len(as))
	b.mu.Unlock()
	time.Sleep(b.callTime)
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	for i, a := range as {
		leases[i], errs[i] = b.Acquire(ctx, a)
	}
	if b.breakContract {
		return leases[1:], errs
	}
	return leases, errs
}

func (b *batchBackend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	b.calls.Add(1)
	b.mu.Lock()
	b.freedAtOnce = append(b.freedAtOnce, len(leases))
	b.mu.Unlock()
	time.Sleep(b.callTime)
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Release(ctx, lasts[i])
	}
	if b.breakContract {
		return errs[1:]
	}
	return errs
}

// Locks that the engine can take in one call are requested in one call, and released in one.
func TestSeveralInOneCall(t *testing.T) {
	for _, n := range []int{2, 5, 1000} {
		bubble(t, func(t *testing.T) {
			b, heard := newBatchBackend(), &heard{}
			l := newLocker(t, b, &lock.Options{Observer: heard})
			began := time.Now()
			ctx, held, err := l.AcquireAll(t.Context(), numbered(n, nil)...)
			require.NoError(t, err)
			require.NoError(t, lock.Check(ctx))
			require.NoError(t, release(held))
			require.NoError(t, release(held), "a second release does nothing")
			require.Equal(t, 2*time.Millisecond, time.Since(began))
			require.Equal(t, [][]int{{n}, {n}}, [][]int{seen(b.scripted, &b.asked), seen(b.scripted, &b.freedAtOnce)})
			kinds := heard.kinds()
			require.Equal(t, slices.Repeat([]lock.EventKind{lock.Acquired}, n), kinds[:n])
			require.Equal(t, slices.Repeat([]lock.EventKind{lock.Released}, n), kinds[n:])
			require.Zero(t, l.Active())
			require.Zero(t, l.Entries())
		})
	}
}

// A key that this process holds is waited for in its place in the order, and no later key is held
// meanwhile. Calls that began to wait for one of the call's keys get their turn after the call.
func TestSeveralWithAHolderHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		l := newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), l, nil, "k005")
		reqs := numbered(20, nil)
		done := make(chan *lock.Hold)
		go func() {
			_, held, err := l.AcquireAll(t.Context(), reqs...)
			assert.NoError(t, err)
			done <- held
		}()
		time.Sleep(time.Second)
		require.Equal(t, []int{5}, seen(b.scripted, &b.asked))
		for _, r := range reqs[6:] {
			_, held := acquire(t, t.Context(), l, &lock.Policy{Try: true}, r.Key)
			require.NoError(t, release(held))
		}
		turn := make(chan *lock.Hold)
		go func() {
			_, held := acquire(t, t.Context(), l, nil, "k002")
			turn <- held
		}()
		synctest.Wait()
		require.NoError(t, release(theirs))
		held := <-done
		require.Equal(t, []int{5, 14}, seen(b.scripted, &b.asked))
		require.NoError(t, release(held))
		require.NoError(t, release(<-turn))
		synctest.Wait()
		require.Zero(t, l.Entries())
	})
}

// A key that another process holds is waited for, and the keys after it that were granted are
// released first.
func TestSeveralWithAHolderElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		l, other := newLocker(t, b, nil), newLocker(t, b, nil)
		_, theirs := acquire(t, t.Context(), other, nil, "k005")
		reqs := numbered(20, &lock.Policy{Wait: time.Second})
		_, _, err := l.AcquireAll(t.Context(), reqs...)
		requireOnly(t, lock.ErrNotAcquired, err)
		require.Equal(t, []int{20}, seen(b.scripted, &b.asked))
		require.Equal(t, []int{14}, seen(b.scripted, &b.freedAtOnce)[:1])
		require.NoError(t, release(theirs))
		synctest.Wait()
		requireFree(t, other, reqs)
		require.Zero(t, l.Active())
		require.Zero(t, l.Entries())
	})
}

// After an engine has broken its contract no lock is left.
func TestSeveralWithABrokenContract(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		b.breakContract = true
		l := newLocker(t, b, nil)
		_, _, err := l.AcquireAll(t.Context(), numbered(10, nil)...)
		requireOnly(t, lock.ErrIndeterminate, err)
		synctest.Wait()
		require.EqualValues(t, 10, b.undos.Load())
		requireFree(t, newLocker(t, b.scripted, nil), numbered(10, nil))

		b.breakContract = false
		_, held, err := l.AcquireAll(t.Context(), numbered(10, nil)...)
		require.NoError(t, err)
		b.breakContract = true
		require.NoError(t, release(held)) // meanwhile the leases are released again in the background
		synctest.Wait()
		requireFree(t, newLocker(t, b.scripted, nil), numbered(10, nil))
	})
}

// Of several locks that are released together one is lost, and the release of another has no
// answer. The caller gets ErrLost for the first; the other release is repeated in the background.
func TestSeveralReleasedWithErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		var n atomic.Int64
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			switch n.Add(1) {
			case 3:
				_ = do()
				return lock.ErrLost
			case 5:
				return errors.New("no answer")
			}
			return do()
		}
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), numbered(10, nil)...)
		require.NoError(t, err)
		err = release(held)
		requireOnly(t, lock.ErrLost, err)
		var where *lock.Error
		require.ErrorAs(t, err, &where)
		require.Equal(t, "k007", where.Key, "the last is released first")
		time.Sleep(time.Second)
		requireFree(t, newLocker(t, b.scripted, nil), numbered(10, nil))
		require.EqualValues(t, 11+10, n.Load())
	})
}

// A grant that took longer than its lease lasts is released, and its key is requested again.
func TestSeveralGrantedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		var late atomic.Int64
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if a.Key == "k003" && late.Add(1) == 1 {
				l, err := do()
				time.Sleep(2 * ttl)
				return l, err
			}
			return do()
		}
		l := newLocker(t, b, nil)
		ctx, held, err := l.AcquireAll(t.Context(), numbered(6, &lock.Policy{TTL: ttl})...)
		require.NoError(t, err)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
		synctest.Wait()
		requireFree(t, newLocker(t, b.scripted, nil), numbered(6, nil))
	})
}

// A closed Locker, or a call whose context has ended, sends no request.
func TestSeveralOfAClosedLocker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatchBackend()
		l := newLocker(t, b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := l.AcquireAll(ctx, numbered(10, nil)...)
		requireOnly(t, lock.ErrNotAcquired, err)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close(t.Context()))
		_, _, err = l.AcquireAll(t.Context(), numbered(10, nil)...)
		requireOnly(t, lock.ErrClosed, err)
		require.Zero(t, b.calls.Load())
	})
}

// unhashable is an engine whose type can't be a map key.
type unhashable struct {
	*batchBackend
	servers []string
}

// A Backend may be of any type, even one that can't be a map key.
func TestBatchOfAnyBackend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unhashable{newBatchBackend(), nil}
		l, other := newLocker(t, b, nil), newLocker(t, decorated{b}, nil)
		ctx, held, err := l.AcquireAll(t.Context(), numbered(3, nil)...)
		require.NoError(t, err)
		second := newLocker(t, decorated{b}, nil)
		nested, inner := acquire(t, ctx, second, nil, "k")
		_, _, err = other.Acquire(nested, &lock.Policy{Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(inner))
		require.NoError(t, release(held))
		require.Equal(t, []int{3}, b.freedAtOnce)
	})
}

// decorated is a Backend that wraps another one.
type decorated struct{ driver.Backend }

// A key's wait may end while the call waits for other keys. That is reported as an ended wait, not
// as a failure of the engine.
func TestSeveralAfterTheirWait(t *testing.T) {
	for name, open := range map[string]func() (driver.Backend, *scripted){
		"batch": func() (driver.Backend, *scripted) { b := newBatchBackend(); return b, b.scripted },
		"each":  func() (driver.Backend, *scripted) { b := newBounded(); return b, b.scripted },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b, script := open()
				script.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
					return do()
				}
				l, other := newLocker(t, b, nil), newLocker(t, b, nil)
				_, theirs := acquire(t, t.Context(), other, nil, "k000")
				time.AfterFunc(2*time.Second, func() { theirs.Release(nil) })
				reqs := numbered(5, &lock.Policy{Wait: time.Second})
				reqs[0].Policy = nil
				_, _, err := l.AcquireAll(t.Context(), reqs...)
				requireOnly(t, lock.ErrNotAcquired, err)
				require.ErrorContains(t, err, "waited 1s")
			})
		})
	}
}
