package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that comes to read while another call asks the engine may be unable to share that lease,
// which is much longer or shorter than its own. Then it does not wait until the other call has
// left.
func TestReadersOfDifferentLengths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if err := wait(ctx, time.Second); err != nil {
				return nil, err
			}
			return do()
		}
		l, begin := newLocker(t, b, nil), time.Now()
		lengths := []time.Duration{10 * time.Second, time.Minute, 5 * time.Second}
		concurrently(len(lengths), func(i int) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			p := &lock.Policy{Read: true, TTL: lengths[i]}
			require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error {
				require.LessOrEqual(t, time.Since(begin), 3*time.Second)
				time.Sleep(time.Minute)
				return nil
			}))
		})
	})
}

// A call that comes to read while a writer is inside waits for that writer only, and not for the
// next one, whatever the ttl of other waiting readers.
func TestReadersWaitForOneWriter(t *testing.T) {
	for _, lengths := range [][]time.Duration{
		{10 * time.Second, 10 * time.Second}, {10 * time.Second, time.Minute}, {time.Minute, 50 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			b, write := memlock.New(), &lock.Policy{Write: true}
			l, writer, next := newLocker(t, b, nil), newLocker(t, b, nil), newLocker(t, b, nil)
			_, held := acquire(t, t.Context(), writer, write, "k")
			var left time.Time
			var all sync.WaitGroup
			for _, length := range lengths {
				all.Go(func() {
					assert.NoError(t, l.Do(t.Context(), &lock.Policy{Read: true, TTL: length}, "k", func(context.Context) error {
						assert.Zero(t, time.Since(left), "%v", lengths)
						time.Sleep(time.Second)
						return nil
					}))
				})
				synctest.Wait()
			}
			all.Go(func() {
				assert.NoError(t, next.Do(t.Context(), write, "k", func(context.Context) error { time.Sleep(10 * time.Second); return nil }))
			})
			synctest.Wait()
			left = time.Now()
			require.NoError(t, release(held))
			all.Wait()
		})
	}
}

// Readers of one process whose leases have two lengths send one request to the engine for each
// length, whether they come while others read or while a writer is inside.
func TestReadersOfEachLengthShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
		l, writer := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		both := func() {
			concurrently(20, func(i int) {
				time.Sleep(time.Duration(i) * time.Millisecond)
				p := &lock.Policy{Read: true, TTL: []time.Duration{10 * time.Second, time.Minute}[i%2]}
				assert.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { time.Sleep(time.Second); return nil }))
			})
		}
		both()
		require.EqualValues(t, 2, b.acquires.Load())
		_, held := acquire(t, t.Context(), writer, &lock.Policy{Write: true}, "k")
		time.AfterFunc(500*time.Millisecond, func() { _ = release(held) })
		both()
		require.LessOrEqual(t, b.acquires.Load(), int64(2+2*3), "each length asks before and after it subscribes, and once at the notice")
	})
}

// lateReads is an engine whose grants to readers arrive late.
type lateReads struct {
	*memlock.Backend
	late time.Duration
}

func (b *lateReads) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	lease, err := b.Backend.Acquire(ctx, a)
	if err == nil && a.Mode.Kind == driver.Read {
		time.Sleep(b.late)
	}
	return lease, err
}

// Calls that wait for another call's grant share it, even if it came late. If they asked the engine
// again, they would wait for a writer that came after them.
func TestReadersShareALateGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lateReads{Backend: memlock.New(), late: 8 * time.Second}
		l, writer, begin := newLocker(t, b, nil), newLocker(t, b, nil), time.Now()
		read := &lock.Policy{Read: true, TTL: 10 * time.Second}
		go func() {
			time.Sleep(time.Second)
			assert.NoError(t, writer.Do(t.Context(), &lock.Policy{Write: true}, "k", func(context.Context) error { return nil }))
		}()
		concurrently(2, func(int) {
			assert.NoError(t, l.Do(t.Context(), read, "k", func(ctx context.Context) error {
				assert.Equal(t, b.late, time.Since(begin))
				time.Sleep(time.Minute)
				return lock.Check(ctx)
			}))
		})
		time.Sleep(time.Minute)
	})
}

// hooked is an engine that calls onDeadline when the Locker next asks one of its leases for a
// deadline.
type hooked struct {
	driver.Backend
	onDeadline func()
}

func (b *hooked) Kinds() driver.Kind { return b.Backend.(driver.Kinded).Kinds() }

func (b *hooked) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	inner, err := b.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &hookedLease{inner, b}, nil
}

type hookedLease struct {
	driver.Lease
	b *hooked
}

func (l *hookedLease) Deadline() driver.Instant {
	if f := l.b.onDeadline; f != nil {
		l.b.onDeadline = nil
		f()
	}
	return l.Lease.Deadline()
}

func (l *hookedLease) Downgrade(ctx context.Context, last uint64) error {
	return l.Lease.(driver.Downgrader).Downgrade(ctx, last)
}

// A Downgrade that comes during the hold's release has no effect on the next writer, to whom the
// lease is handed on.
func TestDowngradeDuringARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &hooked{Backend: memlock.New()}
		l, other, write := newLocker(t, b, nil), newLocker(t, b, nil), &lock.Policy{Write: true}
		_, first := acquire(t, t.Context(), l, write, "k")
		turns := make(chan *lock.Hold)
		for range 2 {
			go func() {
				_, held := acquire(t, t.Context(), l, write, "k")
				turns <- held
			}()
		}
		synctest.Wait()
		require.NoError(t, release(first))
		second := <-turns // with a lease that can be handed on
		var third *lock.Hold
		b.onDeadline = func() {
			require.NoError(t, release(second))
			third = <-turns
		}
		require.ErrorIs(t, second.Downgrade(t.Context()), lock.ErrLost)
		require.NotNil(t, third)
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Read: true, Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, release(third))
	})
}
