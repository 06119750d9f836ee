package consullock

import (
	"context"
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// fenced has b undo an attempt on s, which leaves a fence.
func fenced(t *testing.T, addr string, b *Backend, s *session) {
	t.Helper()
	a := attempt(newKey(t))
	a.MayHaveRun = true // as far as it knows
	require.NoError(t, b.Undo(t.Context(), a))
	require.NotNil(t, pair(t, addr, fenceKey(s.id)))
}

// unfenced deletes the fence of s, as nobody should.
func unfenced(t *testing.T, addr string, s *session) {
	t.Helper()
	_, err := newClient(t, addr).KV().Delete(fenceKey(s.id), nil)
	require.NoError(t, err)
}

// before makes a key that is there, unlocked, as api.Lock leaves it.
func before(t *testing.T, addr string) (key string) {
	t.Helper()
	key = newKey(t)
	_, err := newClient(t, addr).KV().Put(&api.KVPair{Key: key, Flags: lockFlag, Value: []byte("theirs")}, nil)
	require.NoError(t, err)
	return key
}

// Where somebody has deleted a fence, locks are taken and places kept all the same.
func TestPlaceAfterTheFenceIsDeleted(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), wish(newKey(t))
	held := take(t, newBackend(t, addr), wish(a.Key))
	l := take(t, b, wish(newKey(t))).(*lease)
	fenced(t, addr, b, l.session)
	unfenced(t, addr, l.session)
	mustHeld(t, b, a)
	queued(t, addr, a.Key, 1)
	release(t, held)
	release(t, take(t, b, a))
	release(t, l)
}

// refusedBy returns a Backend whose transaction to take a lock is refused, because the fence of its
// session is written anew before it. Then it calls next.
func refusedBy(t *testing.T, addr string, next func(between *intruder)) *Backend {
	t.Helper()
	between := &intruder{}
	b := newBackend(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	l := take(t, b, wish(newKey(t))).(*lease)
	t.Cleanup(func() { release(t, l) })
	between.do = func() {
		between.n.Store(-1)
		require.NoError(t, l.session.fence(context.Background(), newID()))
		next(between)
	}
	between.n.Store(1)
	return b
}

// Whoever may wait has the lock, however often the undos of others refuse the attempts to take it.
func TestFencesThatFollowEachOther(t *testing.T) {
	t.Parallel()
	addr, fences := testserver.Consul(t), 0
	b := refusedBy(t, addr, func(between *intruder) {
		if fences++; fences <= contentions {
			between.n.Store(2) // the next look comes first
		}
	})
	l, err := b.Acquire(t.Context(), wish(newKey(t)))
	require.NoError(t, err)
	release(t, l)
	require.Equal(t, contentions+1, fences)
}

// A lock that nobody holds is not told to be held where ctx ends after such a refusal.
func TestFenceIsNoHolder(t *testing.T) {
	addr := testserver.Consul(t)
	ctx, cancel := context.WithCancel(t.Context())
	b := refusedBy(t, addr, func(between *intruder) {
		between.do = cancel
		between.n.Store(1)
	})
	_, err := b.Acquire(ctx, wish(newKey(t)))
	require.ErrorIs(t, err, context.Canceled)
}

// What another holds is told to be held also if ctx ends before it is known who does.
func TestHeldThoughNobodyLooked(t *testing.T) {
	addr, a, between := testserver.Consul(t), attempt(newKey(t)), &intruder{}
	held := take(t, newBackend(t, addr), attempt(a.Key))
	ctx, cancel := context.WithCancel(t.Context())
	between.do = cancel
	b := newBackend(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	between.n.Store(2) // the first tries to take it
	_, err := b.Acquire(ctx, a)
	var other *driver.HeldError
	require.ErrorAs(t, err, &other)
	release(t, held)
}
