package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// commands returns how many batches of a hundred leases batches amounts to.
func commands(batches []int) int {
	n := 0
	for _, b := range batches {
		n += (b + 99) / 100
	}
	return n
}

// S58, G11: after the first period, 10,000 holds cost one command per hundred holds and period, and
// no goroutine each.
func TestTenThousandHoldsRenewInBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const holds = 10_000
		b := newScripted()
		l := newLocker(t, b, nil)
		p := &lock.Policy{TTL: 30 * time.Second}
		all := make([]*lock.Hold, holds)
		ctxs := make([]context.Context, holds)
		for i := range all {
			ctxs[i], all[i] = acquire(t, t.Context(), l, p, fmt.Sprint("k", i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		for range 5 {
			b.mu.Lock()
			b.batches = nil
			b.mu.Unlock()
			time.Sleep(9 * time.Second) // the shortest period, given the jitter
			require.LessOrEqual(t, commands(seen(b, &b.batches)), holds/100)
		}
		require.LessOrEqual(t, goroutines(), 5)
		for i, held := range all {
			require.NoError(t, lock.Check(ctxs[i]))
			require.NoError(t, release(held))
		}
	})
}

// G11: batches are filled with the leases that are due next, in whatever shard they are. So
// renewals are spread over their period as the acquires were, and none comes much too early.
func TestRenewalsAreSpreadOverTheirPeriod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const holds, ttl = 10_000, 30 * time.Second
		b := newScripted()
		l := newLocker(t, b, nil)
		all := make([]*lock.Hold, holds)
		for i := range all {
			_, all[i] = acquire(t, t.Context(), l, &lock.Policy{TTL: ttl}, fmt.Sprint("k", i))
			time.Sleep(time.Millisecond)
		}
		for range 30 {
			b.mu.Lock()
			b.batches = nil
			b.mu.Unlock()
			time.Sleep(time.Second)
			n := 0
			for _, batch := range seen(b, &b.batches) {
				n += batch
			}
			require.Less(t, n, holds/4, "in a second of the period of ten")
		}
		for _, held := range all {
			require.NoError(t, release(held))
		}
	})
}

// A hung engine is asked again by few goroutines, and all contexts end in time.
func TestHungEngineCostsFewGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const holds = 1_000
		b := newScripted()
		b.onRenew = hang
		l := newLocker(t, b.plain(), nil)
		all := make([]*lock.Hold, holds)
		ctxs := make([]context.Context, holds)
		for i := range all {
			ctxs[i], all[i] = acquire(t, t.Context(), l, renewed, fmt.Sprint("k", i))
		}
		time.Sleep(ttl - lock.Margin(ttl) - time.Millisecond)
		require.LessOrEqual(t, goroutines(), 200)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		for i, held := range all {
			require.ErrorIs(t, context.Cause(ctxs[i]), lock.ErrLost)
			require.ErrorIs(t, release(held), lock.ErrLost)
		}
	})
}

// If one backend or one key is silent, the leases of the others are still renewed.
func TestHungBackendDoesNotDelayAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hung, well := newScripted(), newScripted()
		hung.onRenew = hang
		l := newLocker(t, hung, &lock.Options{Backends: map[string]driver.Backend{"eu": well}})
		lost, first := acquire(t, t.Context(), l, renewed, "k")
		kept, second := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl, Backend: "eu"}, "k")
		time.Sleep(5 * ttl)
		require.Error(t, lost.Err())
		require.NoError(t, lock.Check(kept))
		require.ErrorIs(t, release(first), lock.ErrLost)
		require.NoError(t, release(second))
	})
}

// S56, G7: the watch ends before the release is sent. No renewal is sent after that, and an answer
// still to come changes nothing.
func TestNoRenewalAfterRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var releasing atomic.Bool
		b.onRenew = func(ctx context.Context, do func() error) error {
			require.False(t, releasing.Load(), "renewed while it is released")
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			return do()
		}
		b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
			releasing.Store(true)
			return hang(ctx, do)
		}
		l := lock.New(b, nil)
		_, held := acquire(t, t.Context(), l, renewed, "k")
		time.Sleep(ttl/3 + time.Millisecond) // a renewal is under way
		require.EqualValues(t, 1, b.renewals.Load())
		require.NoError(t, release(held))
		time.Sleep(3 * ttl)
		require.EqualValues(t, 1, b.renewals.Load())
		require.Zero(t, l.Watched())
		require.NoError(t, l.Close(t.Context()))
	})
}

// A backend that breaks the contract of RenewAll does not make the Locker lose a lock.
func TestRenewAllWithTooFewResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &noResults{newScripted()}
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		<-ctx.Done()
		require.Equal(t, ttl-lock.Margin(ttl), time.Since(began))
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

type noResults struct{ *scripted }

func (noResults) RenewAll(context.Context, []driver.Lease, []time.Duration) []error { return nil }

// A lease whose grant was slow is renewed in the time that is left of it.
func TestSlowGrantIsRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := do()
			time.Sleep(ttl * 7 / 10)
			return lease, err
		}
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		time.Sleep(2 * ttl)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// To wake a thread costs as much as a command. So a key that is acquired and released again and
// again wakes the watchdog no more often than it would look anyway. A renewal that is due a moment
// before another does not wake it either.
func TestWatchdogIsNotWokenForEachLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 { // whether the watchdog looks before the release or after it
			l := newLocker(t, newScripted(), nil)
			first := time.Now().Add(10 * time.Second)
			for range 3 {
				_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 30 * time.Second}, "k")
				require.NoError(t, release(held))
				synctest.Wait()
				require.Equal(t, time.Until(first), l.NextLook(), "the look is off, and the next lease needs a new one")
				time.Sleep(time.Second)
			}
			time.Sleep(time.Until(first) + time.Millisecond)
			require.Greater(t, l.NextLook(), time.Minute, "nothing is held")
		}
		l := newLocker(t, newScripted(), nil)
		for _, c := range []struct {
			sooner time.Duration
			fixed  bool
			look   time.Duration
		}{
			{0, false, 10 * time.Second},
			{500 * time.Microsecond, false, 10 * time.Second},
			{2 * time.Millisecond, false, 10*time.Second - 2*time.Millisecond},
			{2500 * time.Microsecond, true, 10*time.Second - 2500*time.Microsecond}, // it may be the end of the period
		} {
			p := &lock.Policy{TTL: 30*time.Second - 3*c.sooner, NoRenew: c.fixed}
			_, held := acquire(t, t.Context(), l, p, fmt.Sprint(c.sooner))
			defer release(held)
			synctest.Wait()
			require.Equal(t, c.look, l.NextLook())
		}
	})
}

// A renewal that fails after its lock was released is not repeated, and not reported.
func TestRenewalOfAReleasedLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newScripted(), &heard{}
		b.onRenew = hang
		l := newLocker(t, b, &lock.Options{Observer: heard})
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl}, "k")
		time.Sleep(ttl / 2)
		require.NotZero(t, b.renewals.Load())
		require.NoError(t, release(held))
		time.Sleep(10 * ttl)
		require.NotContains(t, heard.kinds(), lock.RenewalFailed)
	})
}

// Failing renewals are reported once, even if a renewal was under way as the lock was lost.
func TestRenewalOfALostLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, heard := newScripted(), &heard{}
		var renewals atomic.Int64
		b.onRenew = func(ctx context.Context, _ func() error) error {
			if renewals.Add(1) == 1 {
				return errors.New("refused")
			}
			<-ctx.Done()
			return ctx.Err()
		}
		l := newLocker(t, b, &lock.Options{Observer: heard})
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl}, "k")
		<-ctx.Done()
		time.Sleep(10 * ttl)
		failures := slices.DeleteFunc(heard.kinds(), func(k lock.EventKind) bool { return k != lock.RenewalFailed })
		require.Len(t, failures, 1)
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}
