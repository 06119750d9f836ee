package consullock

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// S15, S65: the undo overtakes the acquire. It changes the fence on which the
// acquire depends; other holds of the session live on, and the fence goes with it.
func TestUndoOvertakesTheAcquire(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b := New(newClient(t, n.Addr(addr)), noDelay())
	other := take(t, b, attempt(newKey(t)))
	a := attempt(newKey(t))
	late := n.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, a)
	wantIs(t, err, lock.ErrIndeterminate)
	require.True(t, a.MayHaveRun)
	receive(t, late.Arrived())
	late.Overtake()
	require.NoError(t, b.Undo(t.Context(), a))
	session := other.(*lease).session.id
	require.NotNil(t, pair(t, addr, fenceKey(session)))
	late.Deliver()
	require.Nil(t, pair(t, addr, a.Key), "it came after its undo, and took the lock")

	_, err = b.Acquire(t.Context(), a)
	require.ErrorContains(t, err, "undone")
	release(t, take(t, b, attempt(a.Key))) // by the fence as it is now
	require.NoError(t, other.Renew(t.Context(), short))
	release(t, other)
	require.NoError(t, b.Close())
	require.Nil(t, pair(t, addr, fenceKey(session)))
}

// Another acquisition's fence costs those under way one more request, no more.
func TestFenceRefusesNobodyElse(t *testing.T) {
	addr := testserver.Consul(t)
	b := newBackend(t, addr)
	l := take(t, b, attempt(newKey(t)))
	s := l.(*lease).session
	// As by another process's undo, whose answer we have not seen.
	_, err := b.write(t.Context(), ops{kv(api.KVLock, api.KVTxnOp{Key: fenceKey(s.id), Session: s.id, Value: []byte("x")})})
	require.NoError(t, err)
	require.Zero(t, s.fenceIndex())
	release(t, take(t, b, attempt(newKey(t))))
	require.NotZero(t, s.fenceIndex())
	release(t, l)
}

// S33: a server that hangs delays no caller beyond its context, and holders stop
// in time. Afterwards all is as it was.
func TestHungServer(t *testing.T) {
	server := testserver.StartConsul(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(short), key)
	server.Stop()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := l.Acquire(brief, ttl(short), newKey(t))
	require.Error(t, err)
	wantIs(t, err, context.DeadlineExceeded)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	server.Cont()
	wantIs(t, finish(held), lock.ErrLost)
	_, held = acquire(t, l, ttl(short), key)
	mustRelease(t, held)
}

// S67: a server that is restarted keeps sessions and locks, and tokens rise over
// it: whoever holds goes on if it is back in time.
func TestRestartedServer(t *testing.T) {
	server := testserver.StartConsul(t, testserver.ConsulOnDisk)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(time.Minute), key)
	before, _ := lock.Token(ctx)
	server.Restart()
	require.NoError(t, lock.Check(ctx))
	require.NotNil(t, pair(t, server.Addr(), key))
	waiter := start(l, ttl(time.Minute), key)
	mustRelease(t, held)
	o := receive(t, waiter)
	require.NoError(t, o.err)
	after, _ := lock.Token(o.ctx)
	require.Greater(t, after, before)
	mustRelease(t, o.held)
}

// S29: a server that comes back empty knows neither session nor lock. The holder
// hears of it, and the next acquire makes a session.
func TestServerThatLostItsData(t *testing.T) {
	server := testserver.StartConsul(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(3*time.Second), key)
	server.Restart()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	_, held = acquire(t, l, ttl(3*time.Second), key)
	mustRelease(t, held)
}

// An undo that nobody was able to do ends with the session: no other is given
// out, and it is destroyed when its last lease has gone.
func TestSessionWithAnAbandonedAttemptIsRetired(t *testing.T) {
	addr := testserver.Consul(t)
	b := newBackend(t, addr)
	l := take(t, b, attempt(newKey(t)))
	s := l.(*lease).session
	a := attempt(newKey(t))
	b.unanswered(a, s)
	b.attempts[a.ID].since = time.Now().Add(-time.Hour)
	require.NoError(t, s.reach(t.Context(), driver.Now().Add(s.ttl-50*time.Millisecond)))
	eventually(t, soon, "the session is retired", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.retired
	})
	next := take(t, b, attempt(newKey(t)))
	require.NotEqual(t, s.id, next.(*lease).session.id)
	require.NoError(t, l.Renew(t.Context(), short))
	release(t, l)
	client := newClient(t, addr)
	eventually(t, soon, "the session is destroyed", func() bool {
		e, _, err := client.Session().Info(s.id, nil)
		return err == nil && e == nil
	})
	release(t, next)
}

// An attempt that had no answer is not abandoned as long as its acquisition is asked for,
// or holds the lock, be it by another session.
func TestAttemptOfOneThatLives(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), wish(newKey(t))
	held := take(t, newBackend(t, addr), wish(a.Key))
	for _, keep := range []bool{false, true} {
		s, err := b.session(t.Context(), classOf(a.TTL, keep))
		require.NoError(t, err)
		b.unanswered(a, s)
	}
	abandoned := func() (some bool) {
		b.mu.Lock()
		at := b.attempts[a.ID]
		sessions := maps.Clone(at.sessions)
		b.mu.Unlock()
		for s := range sessions {
			some = some || b.abandoned(s)
		}
		return some
	}
	longAgo := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.attempts[a.ID].since = time.Now().Add(-time.Hour)
	}
	longAgo()
	require.True(t, abandoned())
	mustHeld(t, b, a)
	require.False(t, abandoned())
	release(t, held)
	l := take(t, b, a)
	longAgo()
	require.False(t, abandoned())
	release(t, l)
}

// A session that has ended leaves its fence under lock-delay. An undo takes that for
// what it is: nothing comes late any more.
func TestUndoAfterTheSession(t *testing.T) {
	addr := testserver.Consul(t)
	b := New(newClient(t, addr), Options{LockDelay: maxLockDelay})
	defer b.Close()
	s := take(t, b, attempt(newKey(t))).(*lease).session
	for range 2 {
		a := attempt(newKey(t))
		b.unanswered(a, s) // as far as it knows
		require.NoError(t, b.Undo(t.Context(), a))
		endSession(t, addr, s.id)
	}
}

// The value of a key that was there before is put back, also where the answer to the
// acquire was lost.
func TestValueBeforeAnAttemptWithoutAnAnswer(t *testing.T) {
	addr := testserver.Consul(t)
	for _, undone := range []bool{false, true} {
		n, key := backendtest.NewNetwork(t), before(t, addr, "theirs")
		b, a := newBackend(t, n.Addr(addr)), attempt(key)
		release(t, take(t, b, attempt(key))) // there is a session
		v := sight(t, b, key)
		n.LoseReplies()
		_, err := (&taking{backend: b, acquisition: a, process: process(a.ID)}).take(within(t, 200*time.Millisecond), v)
		require.ErrorIs(t, err, errNoAnswer)
		n.Heal()
		require.True(t, sight(t, b, key).heldBy(a.ID))
		if undone {
			require.NoError(t, b.Undo(t.Context(), a))
		} else {
			release(t, take(t, b, a))
		}
		p := pair(t, addr, key)
		require.Empty(t, p.Session)
		require.Equal(t, "theirs", string(p.Value))
	}
}

// A server that is restarted begins the lock-delays of sessions that ended long ago
// anew, also for keys that are held since. Then no release can give the lock on, and
// it is left free.
func TestReleaseUnderLockDelay(t *testing.T) {
	addr := testserver.Consul(t)
	b, holder, a := giver(t, addr), giver(t, addr), wish(newKey(t))
	held := takeUnderLockDelay(t, addr, holder, wish(a.Key))
	waits(t, b, a)
	l := held.(*lease)
	l.backend.lookAt(t.Context(), []*lease{l})
	grant := l.granting(t.Context())
	require.NotEmpty(t, grant)
	_, err := l.backend.write(t.Context(), grant)
	require.ErrorIs(t, err, errDelayed, "it is not as after a restart")
	release(t, held)
	require.Nil(t, pair(t, addr, a.Key))
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
}

// takeUnderLockDelay has b take a's key, which the lock-delay of another session keeps
// shut for a minute. No acquire is let in by then, but one transaction may end that
// session and lock the key: it is checked before.
func takeUnderLockDelay(t *testing.T, addr string, b *Backend, a *driver.Acquisition) driver.Lease {
	t.Helper()
	c, node := newClient(t, addr), newKey(t)
	_, err := c.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "127.0.0.1"}, nil)
	require.NoError(t, err)
	old, _, err := c.Session().CreateNoChecks(&api.SessionEntry{
		Node: node, Behavior: api.SessionBehaviorDelete, LockDelay: maxLockDelay,
	}, nil)
	require.NoError(t, err)
	ok, _, err := c.KV().Acquire(&api.KVPair{Key: a.Key, Session: old, Flags: lockFlag}, nil)
	require.NoError(t, err)
	require.True(t, ok)
	s, err := b.session(t.Context(), classOf(a.TTL, false))
	require.NoError(t, err)
	_, err = b.write(t.Context(), ops{
		{Node: &api.NodeTxnOp{Verb: api.NodeDelete, Node: api.Node{Node: node}}},
		kv(api.KVLock, api.KVTxnOp{Key: a.Key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}),
	})
	require.NoError(t, err)
	_, l, err := (&taking{backend: b, acquisition: a, process: process(a.ID), session: s}).reconsider(t.Context())
	require.NoError(t, err)
	require.NotNil(t, l, "it finds the lock its own")
	return l
}
