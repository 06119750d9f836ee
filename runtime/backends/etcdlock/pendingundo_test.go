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
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// failedUndo has an undo of a fail, and does not repeat it. The session
// survives the outage.
func failedUndo(t testing.TB, b *Backend, proxy *faultproxy.Stream, a *driver.Acquisition) {
	t.Helper()
	proxy.Refuse()
	proxy.Reset()
	ctx, cancel := contextFor(t, 100*time.Millisecond)
	defer cancel()
	require.Error(t, b.Undo(ctx, a))
	proxy.Accept()
	accepted := time.Now()
	back, cancel := contextFor(t, soon)
	defer cancel()
	for state := b.conn.GetState(); state != connectivity.Ready; state = b.conn.GetState() {
		require.True(t, b.conn.WaitForStateChange(back, state), "the client must connect again")
	}
	require.Less(t, time.Since(accepted), 600*time.Millisecond+meter.Since(accepted), "by itself gRPC would pause for at least 800 ms")
}

// nothingPending waits until the sessions of locker have no undo pending.
func nothingPending(t testing.TB, b *Backend, locker string) {
	t.Helper()
	eventually(t, "no undo is pending", func() bool {
		for _, s := range b.sessionsOf(locker) {
			if s.HasUndo() {
				return false
			}
		}
		return true
	})
}

// G6: an undo failed, so the session would keep the lock alive forever. The session therefore
// repeats the undo.
func TestPendingUndo(t *testing.T) {
	t.Parallel()
	proxy, c := faultproxy.NewStream(t, shared(t)), admin(t, shared(t))
	b, f, key := withoutResends(t, proxy.Addr())
	a := attempt(key, "A:1")
	require.NoError(t, lateAcquire(t, b, f, a).arrives(t))
	queued(t, c, key, 1)
	failedUndo(t, b, proxy, a)
	nothingLeft(t, c, key)
	nothingPending(t, b, "A")
	require.Len(t, tombstonesOf(t, c, a), 1, "a late attempt must take nothing")

	// An undo that the caller repeats is no longer pending.
	failedUndo(t, b, proxy, a)
	require.NoError(t, b.Undo(t.Context(), a))
	for _, s := range b.sessionsOf("A") {
		require.False(t, s.HasUndo())
	}
}

// A pending undo also deletes a queue entry that nobody uses any more. An entry that was taken
// over meanwhile stays.
func TestPendingUndoOfAnEntry(t *testing.T) {
	t.Parallel()
	proxy, c := faultproxy.NewStream(t, shared(t)), admin(t, shared(t))
	b, key := newBackend(t, proxy.Addr()), newKey(t)
	taken(t, b, attempt(key, "B:1"))
	requireHeld(t, b, attempt(key, "A:1"))
	failedUndo(t, b, proxy, attempt(key, "A:2")) // an acquisition that made no attempt
	queued(t, c, key, 1)
	eventually(t, "the entry is forgotten", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.entries[engine.Place{Process: "A", Key: key}] == nil
	})

	requireHeld(t, b, attempt(key, "A:3"))
	failedUndo(t, b, proxy, attempt(key, "A:4"))
	requireHeld(t, b, attempt(key, "A:5"))
	nothingPending(t, b, "A")
	_, values := below(t, c, key+"/")
	require.Equal(t, []string{"B:1", "A:5"}, values)
}

// The same if the undo did not get the turn of the entry, and could not read it.
func TestPendingUndoWithoutTheTurn(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	lease := taken(t, b, attempt(key, "B:1"))
	failUndo := func(a *driver.Acquisition) {
		e, err := b.enter(t.Context(), a)
		require.NoError(t, err)
		defer e.leave()
		ctx, cancel := contextFor(t, 20*time.Millisecond)
		defer cancel()
		require.Error(t, b.Undo(ctx, a))
	}
	requireHeld(t, b, attempt(key, "A:1"))
	failUndo(asTry(attempt(key, "A:2"))) // another acquisition waits there
	nothingPending(t, b, "A")
	queued(t, b.client, key, 2)
	failUndo(attempt(key, "A:3"))
	requireHeld(t, b, attempt(key, "A:4")) // the entry serves the next acquisition
	nothingPending(t, b, "A")
	_, values := below(t, b.client, key+"/")
	require.Equal(t, []string{"B:1", "A:4"}, values)
	failUndo(attempt(key, "A:5"))
	nothingPending(t, b, "A")
	released(t, lease)
	_, values = below(t, b.client, key+"/")
	require.Empty(t, values)
}

// Nobody uses a queue entry any more, and its undo fails until its session has ended. Then the
// Backend forgets the entry.
func TestEntryIsForgotten(t *testing.T) {
	t.Parallel()
	proxy, key := faultproxy.NewStream(t, shared(t)), newKey(t)
	b, a := newBackend(t, proxy.Addr()), attempt(key, "A:1")
	taken(t, newBackend(t, shared(t)), attempt(key, "B:1"))
	requireHeld(t, b, a)
	s := b.sessionsOf("A")[0]
	proxy.Refuse()
	proxy.Reset()
	ctx, cancel := contextFor(t, 100*time.Millisecond)
	defer cancel()
	require.Error(t, b.Undo(ctx, a))
	s.End(errSessionEnded)
	proxy.Accept()
	eventually(t, "the entry and the session are forgotten", func() bool { return b.remembered()+len(b.sessions.All()) == 0 })
}

// A session ends at the moment when a queue entry is created in it, and no new session can be granted. The
// entry needs an undo, because nothing else forgets it while etcd can't be reached.
func TestEntryWithoutANewSession(t *testing.T) {
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
			b.sessionsOf("A")[0].End(errSessionEnded)
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
	require.Zero(t, b.remembered())
	away.Store(false)
	nothingLeft(t, admin(t, shared(t)), key)
}
