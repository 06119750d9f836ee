package etcdlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
)

// undoneInVain has an undo of a fail, and nobody tries it again; the session
// outlives the outage.
func undoneInVain(t testing.TB, b *Backend, proxy *faultproxy.Stream, a *driver.Acquisition) {
	t.Helper()
	proxy.Refuse()
	proxy.Reset()
	ctx, cancel := contextFor(t, 100*time.Millisecond)
	defer cancel()
	require.Error(t, b.Undo(ctx, a))
	proxy.Accept()
}

// nothingOwed waits until the sessions of locker have made up for all undos.
func nothingOwed(t testing.TB, b *Backend, locker string) {
	t.Helper()
	eventually(t, "nothing is owed", func() bool {
		for _, s := range b.sessionsOf(locker) {
			s.mu.Lock()
			busy := s.paying
			s.mu.Unlock()
			if busy {
				return false
			}
		}
		return true
	})
}

// G6: what an undo that failed did not free would be kept alive for ever: the session
// makes up for it.
func TestUndoIsOwed(t *testing.T) {
	t.Parallel()
	proxy, c := faultproxy.NewStream(t, shared(t)), admin(t, shared(t))
	b, f, key := patient(t, proxy.Addr())
	a := attempt(key, "A:1")
	require.NoError(t, straggling(t, b, f, a).arrives(t))
	queued(t, c, key, 1)
	undoneInVain(t, b, proxy, a)
	nothingLeft(t, c, key)
	nothingOwed(t, b, "A")
	require.Len(t, marksOf(t, c, a), 1, "an attempt that is late takes nothing")

	// One that is tried again is owed no more.
	undoneInVain(t, b, proxy, a)
	require.NoError(t, b.Undo(t.Context(), a))
	for _, s := range b.sessionsOf("A") {
		_, owed := s.owed()
		require.False(t, owed)
	}
}

// A place in the queue that nobody wants any more goes as well; one that was taken
// over meanwhile stays.
func TestPlaceIsOwed(t *testing.T) {
	t.Parallel()
	proxy, c := faultproxy.NewStream(t, shared(t)), admin(t, shared(t))
	b, key := newBackend(t, proxy.Addr()), newKey(t)
	taken(t, b, attempt(key, "B:1"))
	requireHeld(t, b, attempt(key, "A:1"))
	undoneInVain(t, b, proxy, attempt(key, "A:2")) // by who never asked
	queued(t, c, key, 1)
	eventually(t, "the place is forgotten", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.places[placeID{"A", key}] == nil
	})

	requireHeld(t, b, attempt(key, "A:3"))
	undoneInVain(t, b, proxy, attempt(key, "A:4"))
	requireHeld(t, b, attempt(key, "A:5"))
	nothingOwed(t, b, "A")
	_, values := below(t, c, key+"/")
	require.Equal(t, []string{"B:1", "A:5"}, values)
}

// The same where an undo did not even have its turn, and could not see the place.
func TestPlaceIsOwedWithoutTheTurn(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	lease := taken(t, b, attempt(key, "B:1"))
	inVain := func(a *driver.Acquisition) {
		k, err := keysOf(a)
		require.NoError(t, err)
		p, err := b.enter(t.Context(), k)
		require.NoError(t, err)
		defer p.leave()
		ctx, cancel := contextFor(t, 20*time.Millisecond)
		defer cancel()
		require.Error(t, b.Undo(ctx, a))
	}
	requireHeld(t, b, attempt(key, "A:1"))
	inVain(only(attempt(key, "A:2"))) // another waits there
	nothingOwed(t, b, "A")
	queued(t, b.client, key, 2)
	inVain(attempt(key, "A:3"))
	requireHeld(t, b, attempt(key, "A:4")) // it serves the next
	nothingOwed(t, b, "A")
	_, values := below(t, b.client, key+"/")
	require.Equal(t, []string{"B:1", "A:4"}, values)
	inVain(attempt(key, "A:5"))
	nothingOwed(t, b, "A")
	released(t, lease)
	_, values = below(t, b.client, key+"/")
	require.Empty(t, values)
}

// Where nobody comes back for a place in the queue, and its undo fails until its session
// has ended, it is forgotten with that.
func TestPlaceIsForgotten(t *testing.T) {
	t.Parallel()
	proxy, key := faultproxy.NewStream(t, shared(t)), newKey(t)
	b, a := newBackend(t, proxy.Addr()), attempt(key, "A:1")
	a.TTL = 500 * time.Millisecond
	taken(t, newBackend(t, shared(t)), attempt(key, "B:1"))
	requireHeld(t, b, a)
	s := b.sessionsOf("A")[0]
	proxy.Refuse()
	proxy.Reset()
	ctx, cancel := contextFor(t, 100*time.Millisecond)
	defer cancel()
	require.Error(t, b.Undo(ctx, a))
	receive(t, "the end of the session", s.ended.Done())
	proxy.Accept()
	eventually(t, "all is forgotten", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.places)+len(b.sessions)+len(b.dying) == 0
	})
}

// A place in a session that ended as it was taken is to be undone where there is no new
// session: nothing else forgets it while etcd is out of reach.
func TestPlaceWithoutANewSession(t *testing.T) {
	t.Parallel()
	var b *Backend
	var away atomic.Bool
	key := newKey(t)
	cut := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if away.Load() {
			return status.Error(codes.PermissionDenied, "away")
		}
		err := invoke(ctx, method, req, reply, cc, options...)
		if writes(key)(req) {
			away.Store(true)
			b.sessionsOf("A")[0].end(errSessionEnded)
		}
		return err
	}
	b = newBackend(t, shared(t), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(cut))
	})
	a := attempt(key, "A:1")
	_, err := b.Acquire(t.Context(), a)
	require.ErrorContains(t, err, "away")
	require.True(t, a.MayBeGranted)
	require.NoError(t, b.Undo(t.Context(), a))
	b.mu.Lock()
	places := len(b.places)
	b.mu.Unlock()
	require.Zero(t, places)
	away.Store(false)
	nothingLeft(t, admin(t, shared(t)), key)
}
