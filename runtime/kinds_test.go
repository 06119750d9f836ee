package lock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// counting counts the attempts that reach the engine.
type counting struct {
	*memlock.Backend
	acquires atomic.Int64
	loses    atomic.Bool // answer renewals with driver.ErrLost
}

func (c *counting) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	c.acquires.Add(1)
	return c.Backend.Acquire(ctx, a)
}

func (c *counting) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := c.Backend.RenewAll(ctx, leases, ttls)
	for i := range errs {
		if c.loses.Load() {
			errs[i] = driver.ErrLost
		}
	}
	return errs
}

// mutexesOnly hides the other abilities of an engine.
type mutexesOnly struct{ driver.Backend }

func TestPoliciesOfKinds(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	for _, p := range []lock.Policy{
		{Read: true, Write: true}, {Read: true, Fair: true}, {Fair: true, Permits: 2}, {Write: true, Permits: 1},
		{Permits: -1}, {Weight: 1}, {Permits: 2, Weight: 3}, {Permits: 2, Weight: -1}, {Queue: -1}, {Queue: 1, Try: true},
		{Delay: -1}, {TTL: time.Second, Delay: 1 << 62},
	} {
		_, _, err := l.Acquire(t.Context(), &p, "k")
		require.ErrorIs(t, err, lock.ErrInvalid, "%+v", p)
		require.Panics(t, func() { l.MustSupport(&p) })
	}
	only := newLocker(t, mutexesOnly{memlock.New()}, &lock.Options{Backends: map[string]lock.Backend{"all": memlock.New()}})
	for _, p := range []lock.Policy{{Read: true}, {Write: true}, {Fair: true}, {Permits: 1}} {
		_, _, err := only.Acquire(t.Context(), &p, "k")
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, "only mutexes")
		require.PanicsWithError(t, "lock: policy k:<id>: invalid: the backend lock_test.mutexesOnly has no "+kindOf(p)+" locks, only mutexes",
			func() { p := p; p.Pattern = "k:<id>"; only.MustSupport(&lock.Policy{}, &p) })
		p.Backend = "all"
		require.NotPanics(t, func() { only.MustSupport(&p) })
		p.Backend = "none"
		require.PanicsWithError(t, `lock: policy: invalid: no backend is named "none" in Options.Backends; there are "all"`,
			func() { only.MustSupport(&p) })
	}
	require.NotPanics(t, func() { l.MustSupport(nil) }, "nil is a mutex with the defaults")
	var none *lock.Locker
	require.NotPanics(t, func() { none.MustSupport(&lock.Policy{Read: true}) }, "the first call says that the Locker is nil")
}

func kindOf(p lock.Policy) string {
	switch {
	case p.Read:
		return "read"
	case p.Write:
		return "write"
	case p.Fair:
		return "fair"
	}
	return "permits"
}

// Of 1,000 calls that come at once, 100 wait. The others are refused without a command to the
// engine.
func TestQueueShedsLoad(t *testing.T) {
	for name, p := range map[string]lock.Policy{
		"mutex": {}, "write": {Write: true}, "fair": {Fair: true}, "permits": {Permits: 1}, "weighed": {Permits: 4, Weight: 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := &counting{Backend: memlock.New()}
				l := newLocker(t, b, nil)
				p.Queue = 100
				_, held := acquire(t, t.Context(), l, &p, "k")
				var busy, served atomic.Int64
				done := make(chan struct{})
				call := func(int) {
					err := l.Do(t.Context(), &p, "k", func(context.Context) error { return nil })
					if err == nil {
						served.Add(1)
						return
					}
					require.ErrorIs(t, err, lock.ErrBusy)
					require.ErrorIs(t, err, lock.ErrNotAcquired)
					busy.Add(1)
				}
				// Up to three calls ask the engine, and do not count as waiting until it answers.
				var first sync.WaitGroup
				for range 3 {
					first.Go(func() { call(0) })
				}
				synctest.Wait()
				go func() {
					defer close(done)
					concurrently(997, call)
					first.Wait()
				}()
				synctest.Wait()
				require.EqualValues(t, 900, busy.Load())
				require.LessOrEqual(t, b.acquires.Load(), int64(201), "each waiter for a fair lock tries before and after it subscribes")
				require.NoError(t, release(held))
				<-done
				require.EqualValues(t, 100, served.Load())
			})
		})
	}
}

// While a deployment changes the number of permits, the smaller number counts, and an event reports
// the difference.
func TestPermitsDiffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got []lock.Event
		engine := memlock.New()
		old := newLocker(t, engine, nil)
		l := newLocker(t, engine, &lock.Options{Observer: observerFunc(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.PermitsDiffer {
				got = append(got, e)
			}
		})})
		few, many := &lock.Policy{Permits: 1, Try: true}, &lock.Policy{Permits: 3, Try: true}
		_, held := acquire(t, t.Context(), old, few, "k")
		for range 2 {
			_, _, err := l.Acquire(t.Context(), many, "k")
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		_, _, err := l.Acquire(t.Context(), few, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.Len(t, got, 2)
		require.Equal(t, "k", got[0].Key)
		require.ErrorContains(t, got[0].Err, "permits=3, and a holder goes by permits=1")
		require.NoError(t, release(held))
		_, held = acquire(t, t.Context(), l, many, "k")
		require.Len(t, got, 2)
		require.NoError(t, release(held))
	})
}

// A call that reads while other calls of its process read sends nothing to the engine, for as long
// as a lease is handed on.
func TestReadersOfOneProcessShareALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
		l := newLocker(t, b, nil)
		p := &lock.Policy{Read: true}
		_, first := acquire(t, t.Context(), l, p, "k")
		var rest []*lock.Hold
		for range 100 {
			_, held := acquire(t, t.Context(), l, p, "k")
			require.Equal(t, first.Token(), held.Token())
			rest = append(rest, held)
		}
		require.EqualValues(t, 1, b.acquires.Load())
		require.NoError(t, release(first))
		time.Sleep(time.Minute) // those that are still inside keep the lease renewed
		for _, held := range rest {
			require.NoError(t, lock.Check(held.Context()))
			require.NoError(t, release(held))
		}
		writer := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), writer, &lock.Policy{Write: true, Try: true}, "k")
		require.NoError(t, release(held))
	})
}

// All holds that share a lease are told of its loss.
func TestReadersLoseTheirLeaseTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
		l := newLocker(t, b, nil)
		p := &lock.Policy{Read: true, TTL: 3 * time.Second}
		one, first := acquire(t, t.Context(), l, p, "k")
		two, second := acquire(t, t.Context(), l, p, "k")
		b.loses.Store(true)
		<-one.Done()
		<-two.Done()
		for _, held := range []*lock.Hold{first, second} {
			require.ErrorIs(t, release(held), lock.ErrLost)
		}
		b.loses.Store(false)
		_, third := acquire(t, t.Context(), l, p, "k")
		require.NoError(t, release(third))
	})
}

// A lease that is not renewed is not shared, because it ends by itself.
func TestFixedReadersHaveTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		fixed := &lock.Policy{Read: true, NoRenew: true, TTL: time.Second}
		ctx, held := acquire(t, t.Context(), l, fixed, "k")
		renewed, other := acquire(t, t.Context(), l, &lock.Policy{Read: true, TTL: time.Second}, "k")
		<-ctx.Done()
		require.NoError(t, lock.Check(renewed))
		require.NoError(t, release(other))
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

func TestNestedKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		for _, c := range []struct {
			outer, inner lock.Policy
			want         error
		}{
			{lock.Policy{Write: true}, lock.Policy{Read: true}, nil},
			{lock.Policy{Write: true}, lock.Policy{Write: true}, lock.ErrDeadlock},
			{lock.Policy{Write: true}, lock.Policy{Write: true, Reentrant: true}, nil},
			{lock.Policy{Read: true}, lock.Policy{Read: true}, lock.ErrDeadlock},
			{lock.Policy{Read: true}, lock.Policy{Read: true, Reentrant: true}, nil},
			{lock.Policy{Read: true}, lock.Policy{Write: true, Reentrant: true}, lock.ErrDeadlock},
			{lock.Policy{Read: true}, lock.Policy{Reentrant: true}, lock.ErrDeadlock},
			{lock.Policy{}, lock.Policy{Read: true, Reentrant: true}, lock.ErrDeadlock},
			{lock.Policy{Permits: 3}, lock.Policy{Permits: 3, Reentrant: true}, nil},
			{lock.Policy{Permits: 3}, lock.Policy{Permits: 3, Weight: 2, Reentrant: true}, lock.ErrDeadlock},
			{lock.Policy{Permits: 3}, lock.Policy{Permits: 3}, lock.ErrDeadlock},
			{lock.Policy{Fair: true}, lock.Policy{Fair: true, Reentrant: true}, nil},
			{lock.Policy{Fair: true}, lock.Policy{Fair: true}, lock.ErrDeadlock},
		} {
			ctx, outer := acquire(t, t.Context(), l, &c.outer, "k")
			_, inner, err := l.Acquire(ctx, &c.inner, "k")
			require.ErrorIs(t, err, c.want, "%+v in %+v", c.inner, c.outer)
			if c.outer.Read && c.inner.Write {
				require.ErrorContains(t, err, "take the write side first")
			}
			inner.Release(nil)
			_, all, err := l.AcquireAll(ctx, lock.Request{Policy: &c.inner, Key: "k"}, lock.Request{Key: "other"})
			require.ErrorIs(t, err, c.want)
			all.Release(nil)
			require.NoError(t, release(outer))
		}
	})
}

func TestDowngradeOfOtherKinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		require.ErrorIs(t, held.Downgrade(t.Context()), lock.ErrInvalid)
		require.NoError(t, release(held))
		_, held = acquire(t, t.Context(), l, &lock.Policy{Read: true}, "k")
		require.NoError(t, held.Downgrade(t.Context()))
		require.NoError(t, release(held))
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{Write: true}, "k")
		require.NoError(t, held.Downgrade(t.Context()))
		_, _, err := l.Acquire(ctx, &lock.Policy{Write: true, Reentrant: true}, "k")
		require.ErrorIs(t, err, lock.ErrDeadlock, "it reads now")
		require.NoError(t, release(held))
		require.ErrorIs(t, held.Downgrade(t.Context()), lock.ErrLost)
		_, all, err := l.AcquireAll(t.Context(), lock.Request{Policy: &lock.Policy{Write: true}, Key: "k"}, lock.Request{Key: "m"})
		require.NoError(t, err)
		require.ErrorIs(t, all.Downgrade(t.Context()), lock.ErrInvalid)
		require.NoError(t, release(all))
	})
}

// Within a process permits are handed on without a command to the engine.
func TestPermitsAreHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &counting{Backend: memlock.New()}
		l := newLocker(t, b, nil)
		p := &lock.Policy{Permits: 2}
		concurrently(400, func(int) {
			require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error {
				time.Sleep(100 * time.Microsecond)
				return nil
			}))
		})
		require.Less(t, b.acquires.Load(), int64(20), "400 holds of 100 us on two permits are one tenure each")
	})
}

// Waiters that Close ends leave no entry, whatever kind of lock they waited for.
func TestCloseWithWaitersOfKinds(t *testing.T) {
	for _, p := range []lock.Policy{{Write: true}, {Read: true}, {Fair: true}, {Permits: 1}} {
		bubble(t, func(t *testing.T) {
			b := memlock.New()
			holder, l := lock.New(b, nil), lock.New(b, nil)
			outer := lock.Policy{Write: p.Read || p.Write, Fair: p.Fair, Permits: p.Permits}
			_, held := acquire(t, t.Context(), holder, &outer, "k")
			for range 10 {
				go func() {
					_, _, err := l.Acquire(t.Context(), &p, "k")
					require.ErrorIs(t, err, lock.ErrClosed)
				}()
			}
			synctest.Wait()
			require.NoError(t, l.Close(t.Context()))
			require.Zero(t, l.Entries())
			require.NoError(t, release(held))
			require.NoError(t, holder.Close(t.Context()))
			last := lock.New(b, nil)
			_, held = acquire(t, t.Context(), last, &lock.Policy{Try: true}, "k") // a mutex can be had: no record is left
			require.NoError(t, release(held))
			require.NoError(t, last.Close(t.Context()))
		})
	}
}

// A call that a full queue refuses gets its error within a millisecond.
func TestBusyAtOnce(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	p := &lock.Policy{Queue: 100}
	_, held := acquire(t, t.Context(), l, p, "k")
	waits := make(chan error, p.Queue)
	for range p.Queue {
		go func() { waits <- l.Do(t.Context(), p, "k", func(context.Context) error { return nil }) }()
	}
	require.Eventually(t, func() bool { return len(l.Snapshot().Waiters) == p.Queue }, 10*time.Second, time.Millisecond)
	var took []time.Duration
	for range 900 {
		begin := time.Now()
		_, _, err := l.Acquire(t.Context(), p, "k")
		took = append(took, time.Since(begin))
		require.ErrorIs(t, err, lock.ErrBusy)
	}
	slices.Sort(took)
	t.Logf("median %v, 99 of 100 in %v, all in %v", took[450], took[891], took[899])
	require.Less(t, took[810], time.Millisecond, "nine of ten; the rest may have met a busy machine")
	require.NoError(t, release(held))
	for range p.Queue {
		require.NoError(t, <-waits)
	}
}

// A hold that was released can't be downgraded, even while AtLeast keeps its lock.
func TestDowngradeAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		engine := memlock.New()
		l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
		_, held := acquire(t, t.Context(), l, &lock.Policy{Write: true, AtLeast: time.Minute}, "k")
		require.NoError(t, release(held))
		require.ErrorIs(t, held.Downgrade(t.Context()), lock.ErrLost)
		_, _, err := other.Acquire(t.Context(), &lock.Policy{Read: true, Try: true}, "k")
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		time.Sleep(2 * time.Minute)
	})
}
