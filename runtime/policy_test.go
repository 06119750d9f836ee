package lock_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// S94: a policy with impossible values gives ErrInvalid, and nothing is sent.
func TestInvalidPolicies(t *testing.T) {
	b := newScripted()
	l := newLocker(t, b, nil)
	for name, p := range map[string]lock.Policy{
		"negative ttl":  {TTL: -1},
		"ttl of 1 ns":   {TTL: 1},
		"ttl under 1ms": {TTL: time.Millisecond - 1},
		"ttl overflow":  {TTL: math.MaxInt64},
		"ttl too long":  {TTL: 150 * 365 * 24 * time.Hour},
		"negative wait": {Wait: -time.Second},
		"wait and try":  {Wait: time.Second, Try: true},
		"negative max":  {Max: -time.Second},
		"max, no renew": {Max: time.Second, NoRenew: true},
		"backend":       {Backend: "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			_, held, err := l.Acquire(t.Context(), &p, "k")
			require.Nil(t, held)
			requireOnly(t, lock.ErrInvalid, err)
			_, held, err = l.AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Policy: &p, Key: "k"})
			require.Nil(t, held)
			requireOnly(t, lock.ErrInvalid, err)
		})
	}
	_, _, err := l.Acquire(t.Context(), nil, "")
	requireOnly(t, lock.ErrInvalid, err)
	_, _, err = l.AcquireAll(t.Context())
	requireOnly(t, lock.ErrInvalid, err)
	_, _, err = l.AcquireAll(t.Context(), lock.Requests(nil, nil)...)
	require.EqualError(t, err, "lock: acquire: invalid: the list has no element, or an empty key")
	_, _, err = l.AcquireAll(t.Context(), lock.Requests(&lock.Policy{Pattern: "k:<ids...>"}, nil)...)
	require.ErrorContains(t, err, "invalid: k:<ids...>: the list has no element")
	require.Zero(t, b.acquires.Load(), "something was sent")
}

func TestExtremePoliciesWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		for _, p := range []lock.Policy{
			{TTL: lock.MinTTL},
			{TTL: 90 * 365 * 24 * time.Hour},
			{Wait: math.MaxInt64},
			{Max: math.MaxInt64},
		} {
			ctx, held := acquire(t, t.Context(), l, &p, "k")
			time.Sleep(10 * lock.MinTTL)
			require.NoError(t, lock.Check(ctx), "%+v", p)
			require.NoError(t, release(held))
		}
	})
}

func TestNewRefusesNothing(t *testing.T) {
	require.Panics(t, func() { lock.New(nil, nil) })
	for name, b := range map[string]driver.Backend{"eu": nil, "": memlock.New()} {
		require.PanicsWithValue(t, fmt.Sprintf("lock: Options.Backends[%q] is a %T; it needs a name and a Backend", name, b), func() {
			lock.New(memlock.New(), &lock.Options{Backends: map[string]driver.Backend{name: b}})
		})
	}
	var l *lock.Locker
	_, _, err := l.Acquire(t.Context(), nil, "k")
	requireOnly(t, lock.ErrInvalid, err)
}
