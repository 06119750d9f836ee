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

// granting is an engine whose leases are brief at first: half a second, as long
// as nobody has renewed them.
type granting struct{ *scripted }

const briefly = 500 * time.Millisecond

func (b granting) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	short := *a
	if !a.NoRenewal {
		short.TTL = briefly
	}
	inner, err := b.scripted.Acquire(ctx, &short)
	if err != nil {
		return nil, err
	}
	l := &briefLease{Lease: inner}
	l.term.Store(int64(short.TTL))
	return l, nil
}

type briefLease struct {
	driver.Lease
	term atomic.Int64 // ns
}

func (l *briefLease) Term() time.Duration { return time.Duration(l.term.Load()) }

func (l *briefLease) Renew(ctx context.Context, ttl time.Duration) error {
	err := l.Lease.Renew(ctx, ttl)
	if err == nil {
		l.term.Store(int64(ttl))
	}
	return err
}

func (b granting) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

// A brief lease is held for all of its time, whose margin is that of a short
// lease, and is renewed after a third of it should its engine not have done so.
func TestBriefLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := granting{newScripted()}
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
		time.Sleep(briefly/3 - time.Millisecond)
		synctest.Wait()
		require.NoError(t, lock.Check(ctx))
		require.Zero(t, b.renewals.Load())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(1), b.renewals.Load())
		time.Sleep(10 * briefly)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}

// G2: one that is never renewed is over when its engine ends it, not later.
func TestBriefLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := granting{newScripted()}
		b.onRenew = hang
		l := newLocker(t, b, nil)
		ctx, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour}, "k")
		begin := time.Now()
		<-ctx.Done()
		require.Less(t, time.Since(begin), briefly)
		require.Greater(t, time.Since(begin), briefly*9/10)
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		require.ErrorIs(t, release(held), lock.ErrLost)
	})
}

// G10: it is handed on while the renewal is on its way, except to whom will not
// renew it; that one acquires a whole one.
func TestBriefLeaseIsHandedOn(t *testing.T) {
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
				b := granting{newScripted()}
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
				held = <-contested // with a block of tokens, because another waits
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

// A lease that goes from one who did not renew it to one who does is renewed, also
// if its first look went by meanwhile.
func TestHandedOnLeaseIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := granting{newScripted()}
		l := newLocker(t, b, &lock.Options{HandOff: 10 * time.Second})
		holds := make(chan *lock.Hold, 3)
		line := func(p *lock.Policy) {
			go func() {
				_, held, err := l.Acquire(t.Context(), p, "k")
				require.NoError(t, err)
				holds <- held
			}()
			synctest.Wait()
		}
		_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Minute}, "k")
		line(&lock.Policy{TTL: time.Minute, Max: time.Millisecond})
		line(&lock.Policy{TTL: time.Minute})
		require.NoError(t, release(held)) // the next one acquires, with a block of tokens
		held = <-holds
		time.Sleep(briefly * 2 / 3)
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

// A waiter that gives up while its engine may yet grant the key has that undone,
// whoever waits behind it.
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
		behind := make(chan *lock.Hold)
		go func() {
			_, held, err := l.Acquire(t.Context(), nil, "k")
			require.NoError(t, err)
			behind <- held
		}()
		synctest.Wait()
		require.ErrorIs(t, <-ended, lock.ErrNotAcquired)
		synctest.Wait()
		require.Len(t, seen(b, &b.undone), 1)
		require.NoError(t, release(held))
		require.NoError(t, release(<-behind))
	})
}
