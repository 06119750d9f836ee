package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// provisional is an engine whose leases last half a second until they are renewed.
type provisional struct{ *scripted }

const provisionalTTL = 500 * time.Millisecond

func (b provisional) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	short := *a
	if !a.NoRenewal {
		short.TTL = provisionalTTL
	}
	inner, err := b.scripted.Acquire(ctx, &short)
	if err != nil {
		return nil, err
	}
	l := &provisionalLease{Lease: inner}
	l.term.Store(int64(short.TTL))
	return l, nil
}

type provisionalLease struct {
	driver.Lease
	term atomic.Int64 // ns
}

func (l *provisionalLease) Term() time.Duration { return time.Duration(l.term.Load()) }

func (l *provisionalLease) Renew(ctx context.Context, ttl time.Duration) error {
	err := l.Lease.Renew(ctx, ttl)
	if err == nil {
		l.term.Store(int64(ttl))
	}
	return err
}

func (b provisional) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

// A provisional lease is held for all of its time, with the margin of a short lease. It is renewed
// after a third of it if its engine has not done so.
func TestProvisionalLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := provisional{newScripted()}
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
		time.Sleep(provisionalTTL/3 - time.Millisecond)
		synctest.Wait()
		require.NoError(t, lock.Check(ctx))
		require.Zero(t, b.renewals.Load())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(1), b.renewals.Load())
		time.Sleep(10 * provisionalTTL)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// G2: a provisional lease that is never renewed ends here no later than at its engine.
func TestProvisionalLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := provisional{newScripted()}
		b.onRenew = hang
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
		begin := time.Now()
		<-ctx.Done()
		require.Less(t, time.Since(begin), provisionalTTL)
		require.Greater(t, time.Since(begin), provisionalTTL*9/10)
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

// G10: a provisional lease is handed on while its renewal is under way, except to a hold that will
// not be renewed. That hold acquires a whole lease.
func TestProvisionalLeaseIsHandedOn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		next     *lock.Policy
		acquires int64
	}{
		{"renewed", &lock.Policy{TTL: time.Hour}, 1},
		{"not renewed", &lock.Policy{TTL: time.Hour, NoRenew: true}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := provisional{newScripted()}
				l := newLocker(t, b, nil)
				contested := make(chan *lock.Hold)
				_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
				for range 2 {
					go func() {
						_, held, err := l.Acquire(t.Context(), &lock.Policy{TTL: time.Hour}, "k")
						require.NoError(t, err)
						contested <- held
					}()
					synctest.Wait()
				}
				require.NoError(t, release(held))
				held = <-contested // with a block of tokens, because another call waits
				go func() {
					_, held, err := l.Acquire(t.Context(), tc.next, "k")
					require.NoError(t, err)
					contested <- held
				}()
				synctest.Wait()
				require.NoError(t, release(held))
				held = <-contested
				before := b.acquires.Load()
				require.NoError(t, release(held))
				held = <-contested
				require.Equal(t, tc.acquires-1, b.acquires.Load()-before)
				require.NoError(t, release(held))
			})
		})
	}
}

// A lease that is handed on from a hold that was not renewed to one that is renewed, is renewed,
// even if the watchdog's first look at it was before.
func TestHandedOnLeaseIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := provisional{newScripted()}
		l := newLocker(t, b, &lock.Options{HandOff: 10 * time.Second})
		holds := make(chan *lock.Hold, 3)
		enqueue := func(p *lock.Policy) {
			go func() {
				_, held, err := l.Acquire(t.Context(), p, "k")
				require.NoError(t, err)
				holds <- held
			}()
			synctest.Wait()
		}
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Minute}, "k")
		enqueue(&lock.Policy{TTL: time.Minute, Max: time.Millisecond})
		enqueue(&lock.Policy{TTL: time.Minute})
		require.NoError(t, release(held)) // the next call acquires a lease, with a block of tokens
		held = <-holds
		time.Sleep(provisionalTTL * 2 / 3)
		require.Zero(t, b.renewals.Load())
		acquires := b.acquires.Load()
		require.NoError(t, release(held))
		held = <-holds
		require.Equal(t, acquires, b.acquires.Load(), "it was handed on")
		time.Sleep(5 * time.Minute)
		require.NotZero(t, b.renewals.Load())
		require.NoError(t, release(held))
	})
}

// A hold that will not be renewed asks for a whole lease.
func TestFixedHoldsAskForWholeLeases(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				require.Equal(t, fixed, a.NoRenewal)
				return do()
			}
			_, held := acquire(t, t.Context(), newLocker(t, b, nil), &lock.Policy{NoRenew: fixed}, "k")
			require.NoError(t, release(held))
		})
	}
}

// If a waiter gives up while its engine may yet grant the key, that acquisition is undone, even if
// another call waits behind it.
func TestPendingGrantIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			l, err := do()
			a.MayBeGranted = err != nil
			return l, err
		}
		other, l := newLocker(t, b.Backend, nil), newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), other, nil, "k")
		ended := make(chan error)
		go func() {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Wait: time.Second}, "k")
			ended <- err
		}()
		synctest.Wait()
		next := make(chan *lock.Hold)
		go func() {
			_, held, err := l.Acquire(t.Context(), nil, "k")
			require.NoError(t, err)
			next <- held
		}()
		synctest.Wait()
		require.ErrorIs(t, <-ended, lock.ErrNotAcquired)
		synctest.Wait()
		require.Len(t, seen(b, &b.undone), 1)
		require.NoError(t, release(held))
		require.NoError(t, release(<-next))
	})
}
