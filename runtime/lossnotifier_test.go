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

// lossNotifier is an engine whose leases report that they end early.
type lossNotifier struct {
	*scripted
	onGrant      func(*noticedLease)
	onNotifyLoss func(*noticedLease)

	mu    sync.Mutex
	lease *noticedLease // the last one granted
}

func (b *lossNotifier) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	inner, err := b.scripted.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	l := &noticedLease{Lease: inner, onNotifyLoss: b.onNotifyLoss}
	b.mu.Lock()
	b.lease = l
	b.mu.Unlock()
	if b.onGrant != nil {
		b.onGrant(l)
	}
	return l, nil
}

func (b *lossNotifier) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

func (b *lossNotifier) last() *noticedLease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lease
}

type noticedLease struct {
	driver.Lease
	mu      sync.Mutex
	earlier time.Duration // how much earlier the lease ends than the engine last said
	look    func()

	onNotifyLoss func(*noticedLease)
}

func (l *noticedLease) Deadline() driver.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Lease.Deadline().Add(-l.earlier)
}

func (l *noticedLease) Renew(ctx context.Context, ttl time.Duration) error {
	err := l.Lease.Renew(ctx, ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.earlier = 0
	}
	return err
}

func (l *noticedLease) NotifyLoss(look func()) {
	l.mu.Lock()
	l.look = look
	l.mu.Unlock()
	if l.onNotifyLoss != nil {
		l.onNotifyLoss(l)
	}
}

// shorten makes the deadline earlier by that much, and reports it.
func (l *noticedLease) shorten(by time.Duration) {
	l.mu.Lock()
	l.earlier += by
	look := l.look
	l.mu.Unlock()
	if look != nil {
		look()
	}
}

// If the client learns of a loss, the context ends before look returns, without a command, and the
// next call in the queue asks the engine.
func TestLossIsToldAtOnce(t *testing.T) {
	for _, p := range []*lock.Policy{renewed, {TTL: ttl, NoRenew: true}} {
		bubble(t, func(t *testing.T) {
			b := &lossNotifier{scripted: newScripted()}
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

// A lease that was lost before the Locker asked for notices is found to be lost.
func TestLossBeforeTheHolderIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lossNotifier{scripted: newScripted()}
		l := newLocker(t, &lateLoss{b}, nil)
		ctx, held := acquire(t, t.Context(), l, renewed, "k")
		require.Error(t, ctx.Err())
		requireOnly(t, lock.ErrLost, context.Cause(ctx))
		requireOnly(t, lock.ErrLost, release(held))
	})
}

// lateLoss loses every lease after the Locker has checked its grant, and before it asks for
// notices.
type lateLoss struct{ *lossNotifier }

func (b *lateLoss) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := b.lossNotifier.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &lateLossLease{l.(*noticedLease)}, nil
}

type lateLossLease struct{ *noticedLease }

func (l *lateLossLease) NotifyLoss(look func()) {
	l.shorten(ttl)
	l.noticedLease.NotifyLoss(look)
}

// If a deadline moves, its renewal moves too: it is sent at once if it is due by then, and
// otherwise in time.
func TestAMovedDeadlineMovesTheRenewal(t *testing.T) {
	for _, tc := range []struct{ by, after time.Duration }{
		{0, ttl / 3},
		{ttl / 6, ttl / 6},
		{ttl / 2, 0},
	} {
		bubble(t, func(t *testing.T) {
			b := &lossNotifier{scripted: newScripted()}
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

// With renew=off a lease whose deadline has moved is not renewed.
func TestAMovedDeadlineOfAFixedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lossNotifier{scripted: newScripted()}
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

// A notice to a closed Locker changes nothing.
func TestLossAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lossNotifier{scripted: newScripted()}
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
		b := &lossNotifier{scripted: newScripted()}
		b.onGrant = func(*noticedLease) { time.Sleep(ttl / 2) }
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

// The engine answered that a lease is lost. The lock is still released if an attempt to acquire it
// had no answer, because that attempt may yet run, and nobody would know of the lock that it takes.
func TestLostLeaseOfAnUnansweredAttemptIsReleased(t *testing.T) {
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

// A lease whose renewal is due when it is granted is renewed once, and not again when NotifyLoss is
// called.
func TestALateLeaseIsRenewedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &lossNotifier{scripted: newScripted()}
		b.onGrant = func(*noticedLease) { time.Sleep(ttl / 2) }
		b.onNotifyLoss = func(*noticedLease) { time.Sleep(time.Millisecond) } // by now the renewal has begun
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
