package lock_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var secret = bytes.Repeat([]byte("s"), 32)

// signer returns the caller's signer.
func signer(t *testing.T) *lock.Signer {
	t.Helper()
	s, err := lock.NewHMACSigner("k1", secret)
	require.NoError(t, err)
	return s
}

func keyring(t *testing.T, audience string) *lock.Keyring {
	t.Helper()
	v, err := lock.NewHMACVerifier("k1", secret)
	require.NoError(t, err)
	k, err := lock.NewKeyring(audience, nil, v)
	require.NoError(t, err)
	return k
}

// delegated returns the header of a request to "stock" that delegates what ctx owns.
func delegated(t *testing.T, ctx context.Context) lock.HeaderCarrier {
	t.Helper()
	c := lock.HeaderCarrier{}
	require.NoError(t, lock.Inject(ctx, c, signer(t), "stock"))
	return c
}

func extract(t *testing.T, c lock.Carrier, k *lock.Keyring) (context.Context, *lock.Hold) {
	t.Helper()
	ctx, held, err := lock.Extract(t.Context(), c, k)
	require.NoError(t, err)
	return ctx, held
}

// asked counts the acquires that reach it.
type asked struct {
	*memlock.Backend
	times int
}

func (b *asked) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	b.times++
	return b.Backend.Acquire(ctx, a)
}

// P11: the callee is inside the caller's hold, with its token, and a nested call enters without a
// command. The end of the request ends the callee's part, but no lock.
func TestDelegation(t *testing.T) {
	kinds := map[string][2]lock.Policy{ // the caller's policy, and that of the nested call
		"mutex":   {{}, {Reentrant: true}},
		"read":    {{Read: true}, {Read: true, Reentrant: true}},
		"write":   {{Write: true}, {Read: true}},
		"fair":    {{Fair: true}, {Fair: true, Reentrant: true}},
		"permits": {{Permits: 3, Weight: 2}, {Permits: 3, Weight: 2, Reentrant: true}},
	}
	for name, p := range kinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				engine, b := memlock.New(), &asked{Backend: memlock.New()}
				caller, callee := newLocker(t, engine, nil), newLocker(t, b, nil)
				outer, held := acquire(t, t.Context(), caller, &p[0], "k")
				ctx, in := extract(t, delegated(t, outer), keyring(t, "stock"))
				require.Equal(t, tokenOf(t, outer), tokenOf(t, ctx))
				require.Equal(t, held.Token(), in.Token())
				require.Equal(t, "k", in.Key())
				require.True(t, lock.Owns(ctx, "k"))
				require.NoError(t, lock.Check(ctx))

				nested, again := acquire(t, ctx, callee, &p[1], "k")
				require.Equal(t, held.Token(), tokenOf(t, nested))
				require.Zero(t, b.times, "a command")
				require.NoError(t, release(again))
				_, several, err := callee.AcquireAll(ctx, lock.Request{Policy: &p[1], Key: "k"}, lock.Request{Key: "own"})
				require.NoError(t, err)
				require.NoError(t, release(several))
				require.NoError(t, lock.Check(ctx), "a nested call does not end the delegation")
				if p[0].Read {
					_, _, err = callee.Acquire(ctx, &lock.Policy{Write: true}, "k")
					requireOnly(t, lock.ErrDeadlock, err)
				}

				require.NoError(t, release(in))
				require.Error(t, ctx.Err())
				requireOnly(t, lock.ErrLost, lock.Check(ctx))
				require.False(t, lock.Owns(ctx, "k"))
				require.NoError(t, lock.Check(outer))
				try := lock.Policy{Try: true, Write: p[0].Read || p[0].Write, Fair: p[0].Fair, Permits: p[0].Permits, Weight: p[0].Weight}
				_, _, err = newLocker(t, engine, nil).Acquire(t.Context(), &try, "k")
				requireOnly(t, lock.ErrNotAcquired, err)
				require.NoError(t, release(held))
			})
		})
	}
}

// G2: the callee's part ends with the lease that was delegated, even if the caller renews it.
func TestDelegationEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 10 * time.Second}, "k")
		left := time.Until(held.Deadline()) - lock.DefaultSkew
		c := delegated(t, outer)
		time.Sleep(time.Second) // the request is under way
		ctx, in := extract(t, c, keyring(t, "stock"))
		require.Equal(t, left-time.Second, time.Until(in.Deadline()))
		time.Sleep(left - time.Second - 1)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		requireOnly(t, lock.ErrLost, lock.Check(ctx))
		<-ctx.Done()
		requireOnly(t, lock.ErrLost, context.Cause(ctx))
		_, _, err := l.Acquire(ctx, reentrant, "k")
		require.ErrorIs(t, err, lock.ErrLost)
		requireOnly(t, lock.ErrLost, release(in))
		require.NoError(t, lock.Check(outer))
		_, _, err = lock.Extract(t.Context(), c, keyring(t, "stock"))
		requireOnly(t, lock.ErrLost, err)
		require.NoError(t, release(held))
	})
}

// If the delegation ends while a callee waits for another one, the callee is not let in.
func TestDelegationEndsInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 10 * time.Second}, "k")
		k, c := keyring(t, "stock"), delegated(t, outer)
		_, in := extract(t, c, k)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := lock.Extract(short, c, k)
		requireOnly(t, lock.ErrNotAcquired, err)
		_, _, err = lock.Extract(t.Context(), c, k)
		requireOnly(t, lock.ErrLost, err)
		requireOnly(t, lock.ErrLost, release(in))
		require.NoError(t, release(held))
	})
}

// One callee is inside at a time, also if the caller sent several requests. The same request may
// come in again once its callee has returned.
func TestDelegationHasOneCalleeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		other, second := acquire(t, t.Context(), l, nil, "k2")
		k, c := keyring(t, "stock"), delegated(t, outer)
		time.Sleep(time.Second)
		again := delegated(t, outer)
		first, in := extract(t, c, k)
		_, unrelated := extract(t, delegated(t, other), k)
		require.NoError(t, release(unrelated))
		began := time.Now()
		time.AfterFunc(3*time.Second, func() {
			require.NoError(t, lock.Check(first))
			require.NoError(t, release(in))
		})
		_, in2, err := lock.Extract(t.Context(), again, k)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.NoError(t, release(in2))
		_, in3 := extract(t, c, k)
		require.NoError(t, release(in3))
		synctest.Wait() // until the first callee has left
		require.Zero(t, k.InUse())
		require.NoError(t, release(second))
		require.NoError(t, release(held))
	})
}

// A callee may delegate further, even back to a service that is already in the chain.
func TestDelegationGoesFurther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		stock, price := keyring(t, "stock"), keyring(t, "price")
		ctx, in := extract(t, delegated(t, outer), stock)
		c := lock.HeaderCarrier{}
		require.NoError(t, lock.Inject(ctx, c, signer(t), "price"))
		ctx2, in2 := extract(t, c, price)
		ctx3, in3 := extract(t, delegated(t, ctx2), stock)
		require.Equal(t, held.Token(), tokenOf(t, ctx3))
		require.True(t, in3.Deadline().Before(in.Deadline()))
		for _, one := range []*lock.Hold{in3, in2, in, held} {
			require.NoError(t, release(one))
		}
	})
}

// A callee continues after the caller's release, with a token that is then too low.
func TestDelegationOutlivesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		ctx, in := extract(t, delegated(t, outer), keyring(t, "stock"))
		require.NoError(t, release(held))
		_, next := acquire(t, t.Context(), l, nil, "k")
		require.NoError(t, lock.Check(ctx), "as documented")
		require.Greater(t, next.Token(), tokenOf(t, ctx))
		require.NoError(t, release(next))
		require.NoError(t, release(in))
	})
}

// A delegation carries all locks of the chain, and Token answers the same as in the caller.
func TestDelegationOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		first, held := acquire(t, t.Context(), l, nil, "a")
		outer, both, err := l.AcquireAll(first, lock.Request{Key: "b"}, lock.Request{Key: "c"})
		require.NoError(t, err)
		k := keyring(t, "stock")
		ctx, in := extract(t, delegated(t, outer), k)
		_, ok := lock.Token(ctx)
		require.False(t, ok)
		for _, key := range []string{"a", "b", "c"} {
			want, _ := lock.TokenOf(outer, key)
			got, ok := lock.TokenOf(ctx, key)
			require.True(t, ok)
			require.Equal(t, want, got)
			_, again := acquire(t, ctx, l, reentrant, key)
			require.NoError(t, release(again))
		}
		require.NoError(t, release(in))
		requireOnly(t, lock.ErrLost, lock.Check(ctx))
		require.Zero(t, k.InUse())
		require.NoError(t, release(both))
		require.NoError(t, release(held))
	})
}

// A header that is forged, for another service, signed by another key, or cut, is refused with an
// error that says what to do.
func TestDelegationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		outer, held := acquire(t, t.Context(), l, nil, "k")
		c := delegated(t, outer)
		good := c.Get(lock.DelegationKey)
		refused := func(k *lock.Keyring, text, hint string) {
			t.Helper()
			ctx, in, err := lock.Extract(t.Context(), lock.HeaderCarrier{lock.DelegationKey: {text}}, k)
			requireOnly(t, lock.ErrInvalid, err)
			require.Nil(t, in)
			require.False(t, lock.Owns(ctx, "k"))
			require.ErrorContains(t, err, hint)
		}
		stock := keyring(t, "stock")
		for i := range good {
			if i == len(good)-1 { // the last digit has bits that mean nothing
				break
			}
			forged := []byte(good)
			forged[i] = map[bool]byte{true: 'B', false: 'A'}[forged[i] == 'A']
			refused(stock, string(forged), "")
		}
		parts := strings.Split(good, ".")
		refused(stock, parts[0]+"."+parts[1], "")
		refused(stock, parts[0]+".e30."+parts[2], "signature")
		refused(stock, "...", "Verifier")
		refused(stock, "x", "incomplete")
		refused(stock, good+strings.Repeat("A", 20000), "incomplete")
		refused(keyring(t, "price"), good, `is for "stock"`)

		v, err := lock.NewHMACVerifier("k1", bytes.Repeat([]byte("t"), 32))
		require.NoError(t, err)
		other, err := lock.NewKeyring("stock", nil, v)
		require.NoError(t, err)
		refused(other, good, "same key")
		_, in := extract(t, c, stock)
		require.NoError(t, release(in))
		require.NoError(t, release(held))
	})
}

// A header from a caller whose clock is ahead by more than Skew is refused. The bubble's clock is
// behind.
func TestDelegationFromAheadIsRefused(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	outer, held := acquire(t, t.Context(), l, nil, "k")
	c := delegated(t, outer)
	bubble(t, func(t *testing.T) {
		_, _, err := lock.Extract(t.Context(), c, keyring(t, "stock"))
		requireOnly(t, lock.ErrInvalid, err)
		require.ErrorContains(t, err, "raise Skew")
	})
	require.NoError(t, release(held))
}

// A delegation ends if the machine sleeps for longer than it lasts.
func TestSuspendEndsADelegation(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	outer, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour, NoRenew: true}, "k")
	ctx, in := extract(t, delegated(t, outer), keyring(t, "stock"))
	lock.Suspend(30 * time.Minute)
	require.NoError(t, lock.Check(ctx))
	lock.Suspend(30 * time.Minute)
	requireOnly(t, lock.ErrLost, lock.Check(ctx))
	requireOnly(t, lock.ErrLost, release(in))
	requireOnly(t, lock.ErrLost, release(held))
}

// After such a sleep a callee that waited for another one is refused too, before a timer has fired.
func TestSuspendEndsADelegationInTheQueue(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	outer, held := acquire(t, t.Context(), l, &lock.Policy{TTL: time.Hour, NoRenew: true}, "k")
	k, c := keyring(t, "stock"), delegated(t, outer)
	_, in := extract(t, c, k)
	second := make(chan error)
	go func() {
		_, _, err := lock.Extract(t.Context(), c, k)
		second <- err
	}()
	require.Eventually(t, func() bool { return k.InUse() == 2 }, 10*time.Second, time.Millisecond)
	lock.Suspend(2 * time.Hour)
	requireOnly(t, lock.ErrLost, release(in))
	requireOnly(t, lock.ErrLost, <-second)
	require.Zero(t, k.InUse())
	requireOnly(t, lock.ErrLost, release(held))
}

func TestNothingToDelegate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		require.Empty(t, delegated(t, t.Context()))
		ctx, in := extract(t, lock.HeaderCarrier{}, keyring(t, "stock"))
		require.Equal(t, t.Context(), ctx)
		require.NoError(t, release(in))

		outer, held := acquire(t, t.Context(), l, nil, "k")
		require.Empty(t, delegated(t, context.WithoutCancel(outer)))
		requireOnly(t, lock.ErrInvalid, lock.Inject(outer, lock.HeaderCarrier{}, nil, "stock"))
		requireOnly(t, lock.ErrInvalid, lock.Inject(outer, lock.HeaderCarrier{}, signer(t), ""))
		require.NoError(t, release(held))
		requireOnly(t, lock.ErrLost, lock.Inject(outer, lock.HeaderCarrier{}, signer(t), "stock"))
		_, _, err := lock.Extract(t.Context(), lock.HeaderCarrier{}, nil)
		requireOnly(t, lock.ErrInvalid, err)
	})
}

// A callee can't give the lock up, and the delegated hold does not delay Close of its Locker.
func TestDelegatedHoldIsNotTheCallees(t *testing.T) {
	bubble(t, func(t *testing.T) {
		caller, callee := newLocker(t, memlock.New(), nil), lock.New(memlock.New(), nil)
		outer, held := acquire(t, t.Context(), caller, nil, "k")
		ctx, in := extract(t, delegated(t, outer), keyring(t, "stock"))
		nested, again := acquire(t, ctx, callee, reentrant, "k")
		cond := lock.NewCond(callee, "k")
		requireOnly(t, lock.ErrInvalid, cond.Wait(nested))
		requireOnly(t, lock.ErrInvalid, cond.Signal(nested))
		require.NoError(t, callee.Close(t.Context()))
		require.NoError(t, lock.Check(nested))
		require.NoError(t, release(again))
		require.NoError(t, release(in))
		require.NoError(t, release(held))
	})
}
