package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// S27: an attempt is cancelled while a majority or a minority of the members grants it. No member keeps the grant.
func TestCancelledAttemptLeavesNothing(t *testing.T) {
	for _, held := range []int{0, 1, 2} { // of three
		for after := time.Millisecond; after < 5*roundTrip; after += 3 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				for _, s := range all[:held] {
					_, err := s.Backend.Acquire(t.Context(), acquisition("key", "2:1"))
					require.NoError(t, err)
				}
				l := lock.New(process(t, all), nil)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				_, h, err := l.Acquire(ctx, nil, "key")
				if err == nil {
					require.NoError(t, h.Unlock())
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				time.Sleep(time.Second)
				for i, s := range all[held:] {
					_, err := s.Backend.Acquire(t.Context(), acquisition("key", "3:1"))
					require.NoError(t, err, "with %d members held, given up after %v: server %d", held, after, held+i)
				}
				_ = l.Close(t.Context())
			})
		}
	}
}

// S87: so many members are silent that no majority renews the lock. Its holder loses it at its own
// deadline. When the members answer again, the next holder has a higher token.
func TestMajorityFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		one, two := lock.New(process(t, all), nil), lock.New(process(t, all), nil)
		const ttl = 15 * time.Second
		ctx, held, err := one.Acquire(t.Context(), &lock.Policy{TTL: ttl}, "key")
		require.NoError(t, err)
		first := held.Token()
		time.Sleep(time.Minute) // the lease is renewed
		require.NoError(t, lock.Check(ctx))
		all[0].hang(true)
		all[2].hang(true)
		silent := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(2 * ttl):
		}
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		require.LessOrEqual(t, time.Since(silent), ttl)
		require.Greater(t, time.Since(silent), ttl/2)
		all[0].hang(false)
		all[2].hang(false)
		require.ErrorIs(t, held.Unlock(), lock.ErrLost)
		_, next, err := two.Acquire(t.Context(), nil, "key")
		require.NoError(t, err)
		require.Greater(t, next.Token(), first)
		require.NoError(t, next.Unlock())
		_ = one.Close(t.Context())
		_ = two.Close(t.Context())
	})
}
