package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// telling is an engine whose leases say when they end early.
type telling struct {
	*scripted
	onGrant  func(*tellingLease)
	onListen func(*tellingLease)

	mu    sync.Mutex
	lease *tellingLease // the last
}

func (b *telling) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	inner, err := b.scripted.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	l := &tellingLease{Lease: inner, onListen: b.onListen}
	b.mu.Lock()
	b.lease = l
	b.mu.Unlock()
	if b.onGrant != nil {
		b.onGrant(l)
	}
	return l, nil
}

func (b *telling) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

func (b *telling) last() *tellingLease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lease
}

type tellingLease struct {
	driver.Lease
	mu      sync.Mutex
	earlier time.Duration // than the engine last promised
	look    func()

	onListen func(*tellingLease)
}

func (l *tellingLease) Deadline() driver.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Lease.Deadline().Add(-l.earlier)
}

func (l *tellingLease) Renew(ctx context.Context, ttl time.Duration) error {
	err := l.Lease.Renew(ctx, ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.earlier = 0
	}
	return err
}

func (l *tellingLease) NotifyLoss(look func()) {
	l.mu.Lock()
	l.look = look
	l.mu.Unlock()
	if l.onListen != nil {
		l.onListen(l)
	}
}

// shorten brings the deadline forward and says so.
func (l *tellingLease) shorten(by time.Duration) {
	l.mu.Lock()
	l.earlier += by
	look := l.look
	l.mu.Unlock()
	if look != nil {
		look()
	}
}

// A loss that the client hears of ends the context before look
// returns, without a command, and lets the next in line compete.
func TestLossIsToldAtOnce(t *testing.T) {
	for _, p := range []*lock.Policy{renewed, {TTL: ttl, NoRenew: true}} {
		bubble(t, func(t *testing.T) {
			b := &telling{scripted: newScripted()}
			l := newLocker(t, b, nil)
			ctx, held := acquire(t, t.Context(), l, p, "k")
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, held := acquire(t, t.Context(), l, p, "k")
				require.NoError(t, release(held))
			}()
			time.Sleep(time.Second)
			began := time.Now()
			b.last().shorten(ttl)
			require.Error(t, ctx.Err())
			requireLost(t, ctx, l, "k")
			require.Zero(t, b.renewals.Load())
			requireOnly(t, lock.ErrLost, release(held))
			<-done
			require.Less(t, time.Since(began), 2*time.Second)
		})
	}
}

// A lease that was lost before anybody could be told is found so.
func TestLossBeforeTheHolderIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		l := newLocker(t, &lateTelling{b}, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		require.Error(t, ctx.Err())
		requireOnly(t, lock.ErrLost, context.Cause(ctx))
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// lateTelling loses every lease after the Locker has checked its grant and
// before it asks to be told.
type lateTelling struct{ *telling }

func (b *lateTelling) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := b.telling.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &lateTellingLease{l.(*tellingLease)}, nil
}

type lateTellingLease struct{ *tellingLease }

func (l *lateTellingLease) NotifyLoss(look func()) {
	l.shorten(ttl)
	l.tellingLease.NotifyLoss(look)
}

// A deadline that moved moves the renewal: at once where it is due by then, and
// else in time.
func TestAMovedDeadlineMovesTheRenewal(t *testing.T) {
	for _, tc := range []struct{ by, after time.Duration }{
		{0, ttl / 3},
		{ttl / 6, ttl / 6},
		{ttl / 2, 0},
	} {
		bubble(t, func(t *testing.T) {
			b := &telling{scripted: newScripted()}
			l := newLocker(t, b, nil)
			ctx, held := acquire(t, t.Context(), l, renewed, "k")
			b.last().shorten(tc.by)
			if tc.after > 0 {
				time.Sleep(tc.after - time.Millisecond)
				require.Zero(t, b.renewals.Load())
				time.Sleep(2 * time.Millisecond)
			}
			require.EqualValues(t, 1, b.renewals.Load(), "renewed by the time look returns")
			time.Sleep(3 * ttl)
			require.NoError(t, lock.Check(ctx))
			require.NoError(t, release(held))
			before := b.renewals.Load()
			b.last().shorten(ttl / 2)
			require.Equal(t, before, b.renewals.Load(), "renewed after its release")
		})
	}
}

// renew=off: a deadline that moved is not renewed away.
func TestAMovedDeadlineOfAFixedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: ttl, NoRenew: true}, "k")
		b.last().shorten(ttl / 2)
		<-ctx.Done()
		require.Equal(t, ttl/2-lock.Margin(ttl), time.Since(began))
		require.Zero(t, b.renewals.Load())
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// What a closed Locker is told changes nothing.
func TestLossAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		l := lock.New(b, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, l.Close(ended))
		require.Error(t, ctx.Err())
		b.last().shorten(ttl / 2)
		b.last().shorten(ttl)
		require.Zero(t, b.renewals.Load())
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// An acquire whose grant was slow does not wait for the renewal that is due by then.
func TestAcquireDoesNotWaitForTheFirstRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		b.onGrant = func(*tellingLease) { time.Sleep(ttl / 2) }
		b.onRenew = func(ctx context.Context, do func() error) error {
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			return do()
		}
		l := newLocker(t, b, nil)
		began := time.Now()
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		require.Equal(t, ttl/2, time.Since(began))
		time.Sleep(time.Millisecond)
		require.EqualValues(t, 1, b.renewals.Load())
		time.Sleep(3 * ttl)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// A lease that the engine has no more is released where an attempt to take it had no answer
// and may yet run: nobody would know of the lock that it takes.
func TestUnansweredAttemptOfALostLeaseIsBarred(t *testing.T) {
	for _, unanswered := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				a.MayHaveRun = unanswered
				return do()
			}
			b.onRenew = func(context.Context, func() error) error { return driver.ErrLost }
			ctx, held := acquire(t, t.Context(), newLocker(t, b, nil), renewed, "k")
			<-ctx.Done()
			require.ErrorIs(t, release(held), lock.ErrLost)
			time.Sleep(time.Second)
			require.Equal(t, unanswered, b.releases.Load() == 1, "%d releases", b.releases.Load())
		})
	}
}

// A lease whose renewal is due as it comes is renewed once, not again when it says that it can tell of
// a loss.
func TestALateLeaseIsRenewedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &telling{scripted: newScripted()}
		b.onGrant = func(*tellingLease) { time.Sleep(ttl / 2) }
		b.onListen = func(*tellingLease) { time.Sleep(time.Millisecond) } // the renewal has begun
		b.onRenew = func(_ context.Context, do func() error) error {
			time.Sleep(10 * time.Millisecond)
			return do()
		}
		_, held := acquire(t, t.Context(), newLocker(t, b, nil), renewed, "k")
		time.Sleep(ttl / 6)
		require.EqualValues(t, 1, b.renewals.Load())
		require.NoError(t, release(held))
	})
}
