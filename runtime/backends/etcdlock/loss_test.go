package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

const both = faultproxy.Requests | faultproxy.Replies

// leaseOf returns the lease of the oldest key below key.
func leaseOf(t testing.TB, c *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	resp, err := c.Get(t.Context(), key+"/", clientv3.WithFirstCreate()...)
	require.NoError(t, err)
	require.NotEmpty(t, resp.Kvs)
	return clientv3.LeaseID(resp.Kvs[0].Lease)
}

// watchServer returns a meter that measures how late the server of c answers.
func watchServer(t testing.TB, c *clientv3.Client) *lagmeter.Server {
	server := lagmeter.Watch(func(ctx context.Context) { _, _ = c.Get(ctx, "any") })
	t.Cleanup(server.Stop)
	return server
}

// requireKept releases held, whose lease has been renewed since begin. It requires that held is not lost, unless
// this process or the server was late by half of the lease.
func requireKept(t testing.TB, server *lagmeter.Server, ctx context.Context, held *lock.Hold, begin time.Time, lease time.Duration) {
	t.Helper()
	err := cmp.Or(lock.Check(ctx), finish(held))
	if late := meter.Since(begin) + server.Since(begin); late < lease/2 || !errors.Is(err, lock.ErrLost) {
		require.NoError(t, err, "the machine was late by %v", late)
	}
}

// requireLost requires that the hold of ctx is lost within limit after begin.
func requireLost(t testing.TB, ctx context.Context, begin time.Time, limit time.Duration) {
	t.Helper()
	receive(t, "the loss", ctx.Done())
	require.Less(t, time.Since(begin), limit+meter.Since(begin))
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	require.ErrorIs(t, lock.Check(ctx), lock.ErrLost)
}

// S31, S54: somebody deletes a key. The holder learns this at the next
// renewal, and no renewal creates the key again.
func TestKeyTakenAway(t *testing.T) {
	t.Parallel()
	key, l, c := newKey(t), newLocker(t, shared(t)), admin(t, shared(t))
	const lease = 1500 * time.Millisecond
	ctx, held := acquire(t, l, ttl(lease), key)
	other, kept := acquire(t, l, nil, key+"2")
	_, err := c.Delete(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	requireLost(t, ctx, time.Now(), lease/3+200*time.Millisecond)
	require.ErrorIs(t, finish(held), lock.ErrLost)
	time.Sleep(lease / 2) // another renewal would create the key again by then
	nothingLeft(t, c, key)
	require.NoError(t, lock.Check(other))
	require.NoError(t, finish(kept))

	_, held = acquire(t, l, nil, key)
	_, err = c.Delete(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.ErrorIs(t, finish(held), lock.ErrLost, "the method returned before the next renewal")
}

// S71: when the server ends a session, all its locks are lost. The session is not
// used again.
func TestSessionRevoked(t *testing.T) {
	t.Parallel()
	key, b, c := newKey(t), New(newClient(t, []string{shared(t)})), admin(t, shared(t))
	l := lockerOn(t, b)
	const lease = time.Minute
	ctx, held := acquire(t, l, ttl(lease), key)
	other, second := acquire(t, l, ttl(lease), key+"2")
	before := token(t, ctx)
	_, err := c.Revoke(t.Context(), leaseOf(t, c, key))
	require.NoError(t, err)
	begin := time.Now()
	again, third := acquire(t, l, ttl(lease), key+"3") // finds at once that the session is gone
	require.Less(t, time.Since(begin), lease/6)        // long before the next keep-alive
	begin = time.Now()
	requireLost(t, ctx, begin, 100*time.Millisecond)
	requireLost(t, other, begin, 100*time.Millisecond)
	require.ErrorIs(t, finish(held), lock.ErrLost)
	require.ErrorIs(t, finish(second), lock.ErrLost)
	require.Greater(t, token(t, again), before)
	require.NoError(t, finish(third))

	// Without another call, the next keep-alive finds it.
	ctx, held = acquire(t, l, ttl(lease), key)
	_, err = c.Revoke(t.Context(), leaseOf(t, c, key))
	require.NoError(t, err)
	for _, s := range b.sessions.All() {
		s.Ask()
	}
	requireLost(t, ctx, time.Now(), lease/4) // long before the next renewal
	require.ErrorIs(t, finish(held), lock.ErrLost)
}

// S1, S33: silence. The holder's context ends in time, by its own clock, and
// before another client gets the lock (G1, G2).
func TestSilence(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	key, l := newKey(t), newLocker(t, proxy.Addr())
	const lease = 1500 * time.Millisecond
	asked := time.Now()
	ctx, held := acquire(t, l, ttl(lease), key)
	_, second := acquire(t, l, ttl(lease), key+"2")
	begin := time.Now()
	proxy.Hole(both)
	waiting := start(t.Context(), newLocker(t, shared(t)), nil, key)
	select {
	case <-ctx.Done():
	case <-waiting:
		require.Fail(t, "two hold the key at once")
	}
	require.Greater(t, time.Since(asked), lease*9/10)
	require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin))
	got := receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.Less(t, got.at.Sub(begin), 2*time.Second+2*time.Second+meter.Since(begin), "a session's ttl, and until etcd notices its end")
	require.Greater(t, token(t, got.ctx), token(t, ctx))
	require.ErrorIs(t, finish(held), lock.ErrLost)
	require.ErrorIs(t, finish(second), lock.ErrLost)

	proxy.Heal()
	again, third := acquire(t, l, ttl(lease), key+"3")
	require.NoError(t, lock.Check(again))
	require.NoError(t, finish(third))
	require.NoError(t, lock.Check(got.ctx), "late requests must not free the next holder's lock")
	require.NoError(t, finish(got.held))
}

// S20, F7: a deadline counts from before the keep-alive was sent, not from
// the arrival of its answer.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	b := newBackend(t, proxy.Addr())
	a := attempt(newKey(t), "A:1")
	a.TTL = 5*time.Second - 1
	const late = 400 * time.Millisecond
	proxy.Delay(faultproxy.Replies, late)
	lease := taken(t, b, a)
	s := lease.(*lease_).session
	require.Less(t, s.Left(), 5*time.Second-late, "the answer to the grant was late too")
	for range 3 {
		before := s.Deadline()
		tried := s.Ask()
		sent := time.Now()
		receive(t, "a keep-alive", tried)
		if s.Deadline() == before {
			continue
		}
		require.LessOrEqual(t, s.Left(), 5*time.Second-time.Since(sent)+20*time.Millisecond+meter.Since(sent))
		require.Less(t, s.Left(), 5*time.Second-late+50*time.Millisecond+meter.Since(sent))
		require.LessOrEqual(t, lease.Deadline().Left(), s.Left())
	}
}

// lease_ lets tests that call a lease "lease" name its type.
type lease_ = lease

// The session keeps itself alive even if nobody renews. The lease of a policy with NoRenew
// ends nevertheless, for its holder and at the server.
func TestLeaseThatIsNotRenewed(t *testing.T) {
	t.Parallel()
	key, b, c := newKey(t), New(newClient(t, []string{shared(t)})), admin(t, shared(t))
	l := lockerOn(t, b)
	const lease = 1500 * time.Millisecond
	server := watchServer(t, c)
	keep, kept := acquire(t, l, ttl(lease), key+"2")
	asked := time.Now()
	ctx, held := acquire(t, l, &lock.Policy{TTL: lease, NoRenew: true}, key)
	begin := time.Now()
	waiting := start(t.Context(), newLocker(t, shared(t)), nil, key)
	requireLost(t, ctx, begin, lease)
	require.Greater(t, time.Since(asked), lease*9/10, "the lease must not end with the session's next keep-alive")
	got := receive(t, "the lock", waiting) // while the method still runs
	require.NoError(t, got.err)
	require.Greater(t, got.at.Sub(asked), lease)
	require.Less(t, got.at.Sub(begin), 3*time.Second+meter.Since(begin), "the lock must be free before the session could end")
	eventually(t, "the lease is forgotten", func() bool { return b.remembered() <= 1 }) // the other lock
	require.ErrorIs(t, finish(held), lock.ErrLost)
	require.NoError(t, finish(got.held))
	time.Sleep(lease)
	requireKept(t, server, keep, kept, asked, lease)
	nothingLeft(t, c, key)
}

// G7: a renewal that waits for a keep-alive does not revive a lease that has ended meanwhile, and
// whose key is being deleted.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	a := attempt(key, "A:1")
	a.TTL = 400 * time.Millisecond
	late := f.late(deletes(key)) // sent when the lease ends
	lease := taken(t, b, a)
	s := lease.(*lease_).session
	renewed := make(chan error, 1)
	go func() { renewed <- lease.Renew(t.Context(), 2*time.Hour) }() // no session has half of that left
	receive(t, "the end", late.arrived)
	s.Extend(driver.Now(), 2*time.Hour, time.Hour) // as the awaited keep-alive does
	require.ErrorIs(t, receive(t, "an answer", renewed), lock.ErrLost)
	require.Zero(t, max(lease.Deadline().Left(), 0))
	require.NoError(t, late.arrives(t))
}

// The watchdog renews a lease for several times its ttl, with one session. S66 can't happen: the
// streams of keep-alives are our own, each with one request and one answer at a time.
func TestRenewal(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	key, l, c := newKey(t), newLocker(t, shared(t)), admin(t, shared(t))
	server := watchServer(t, c)
	ctx, held := acquire(t, l, ttl(lease), key)
	id, begin := leaseOf(t, c, key), time.Now()
	for lock.Check(ctx) == nil && time.Since(begin) < 7*time.Second {
		time.Sleep(20 * time.Millisecond)
	}
	if lock.Check(ctx) == nil {
		require.Equal(t, id, leaseOf(t, c, key))
	}
	requireKept(t, server, ctx, held, begin, lease)
}

// While the answer to a keep-alive is late, another keep-alive can be sent on a stream of its own.
// After that one stream is left for later keep-alives.
func TestKeepAlivesOverlap(t *testing.T) {
	t.Parallel()
	proxy, f := faultproxy.NewStream(t, shared(t)), &faults{}
	b := newBackend(t, proxy.Addr(), withFaults(f))
	s := sessionFor(t, b, "A", time.Hour) // it sends no keep-alive by itself during the test
	s.Use()
	require.NoError(t, s.KeepAlive(t.Context()))
	require.Equal(t, 1, f.count("LeaseKeepAlive"))
	proxy.Hole(faultproxy.Replies)
	before := s.Deadline()
	answers := make(chan error, 2)
	for range 2 {
		go func() { answers <- s.KeepAlive(t.Context()) }()
	}
	eventually(t, "both are under way", func() bool { return f.count("sent") == 3 })
	proxy.Heal()
	for range 2 {
		require.NoError(t, receive(t, "an answer", answers))
	}
	require.NotEqual(t, before, s.Deadline())
	require.Equal(t, 2, f.count("LeaseKeepAlive"))
	require.NoError(t, s.KeepAlive(t.Context()))
	require.Equal(t, 2, f.count("LeaseKeepAlive"))

	// A keep-alive that is given up ends its stream.
	proxy.Hole(both)
	ctx, cancel := contextFor(t, 50*time.Millisecond)
	defer cancel()
	require.Error(t, s.KeepAlive(ctx))
	proxy.Heal()
	require.NoError(t, s.KeepAlive(t.Context()))
	require.Equal(t, 3, f.count("LeaseKeepAlive"))
}

// A session that nobody uses is revoked, and the next acquire creates a new one.
func TestIdleSession(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	a := attempt(key, "A:1")
	a.TTL = 500 * time.Millisecond
	lease := taken(t, b, a)
	id := clientv3.LeaseID(lease.(*lease_).session.id)
	if err := lease.Release(t.Context(), 0); err != nil {
		require.ErrorIs(t, err, lock.ErrLost) // on a machine that took longer than the lease
	}
	alive := func() bool {
		left, err := b.client.TimeToLive(t.Context(), id)
		require.NoError(t, err)
		return left.TTL >= 0
	}
	require.True(t, alive())
	eventually(t, "the session is revoked", func() bool { return !alive() })
	eventually(t, "the session is forgotten", func() bool { return len(b.sessionsOf("A")) == 0 })
	released(t, taken(t, b, attempt(a.Key, "A:2")))
}

// A lease that ended with its session is forgotten, even if its release had no answer and is never
// repeated.
func TestSessionIsForgotten(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	b := newBackend(t, proxy.Addr())
	a := attempt(newKey(t), "A:1")
	a.TTL = 500 * time.Millisecond
	lease := taken(t, b, a)
	proxy.Refuse()
	proxy.Reset()
	eventually(t, "there is no connection", func() bool { return b.conn.GetState() != connectivity.Ready })
	require.Error(t, lease.Release(t.Context(), 0))
	receive(t, "the end of the session", lease.(*lease_).session.Context().Done())
	proxy.Accept()
	eventually(t, "the lease and the session are forgotten", func() bool { return b.remembered()+len(b.sessions.All()) == 0 })
	require.ErrorIs(t, lease.Release(t.Context(), 0), lock.ErrLost)
}

// An undo does not affect a session that is still being granted, and the acquire that waits for it
// gets it. Close ends such a session and forgets it.
func TestSessionThatIsBeingGranted(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	released(t, taken(t, b, attempt(key, "A:1")))
	grant := func(req any) bool { _, ok := req.(*pb.LeaseGrantRequest); return ok }
	begin := func(ttl time.Duration) (*heldBack, <-chan error) {
		late, done := f.late(grant), make(chan error, 1)
		go func() {
			a := attempt(key, newID("A"))
			a.TTL = ttl
			_, err := b.Acquire(t.Context(), a)
			done <- err
		}()
		receive(t, "a grant under way", late.arrived)
		return late, done
	}
	late, done := begin(20 * time.Second)
	undone := attempt(key+"2", "A:2")
	undone.MayHaveRun = true
	require.NoError(t, b.Undo(t.Context(), undone))
	require.NoError(t, receive(t, "the lock", done)) // the grant is sent again
	require.Error(t, late.arrives(t))

	late, done = begin(30 * time.Second)
	require.NoError(t, b.Close())
	require.Error(t, receive(t, "an answer", done))
	require.Empty(t, b.sessions.All())
	require.NoError(t, late.arrives(t))
}

// S5: Close releases all locks at once.
func TestClose(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c := admin(t, server.Addr())
	b := New(newClient(t, []string{server.Addr()}))
	one, two := lock.New(b, nil), lock.New(b, nil)
	ctx, held := acquire(t, one, nil, "key")
	_, other := acquire(t, two, nil, "other")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, one.Close(short), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	require.ErrorIs(t, finish(held), lock.ErrLost)
	nothingLeft(t, c, "key")
	require.NoError(t, finish(other), "the Backend must stay open for the other Locker")
	closeLocker(t, two)
	all, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, all.Leases)
	late := lock.New(b, nil)
	require.ErrorIs(t, rejected(t, late, nil, "key"), lock.ErrClosed)
	_, err = b.Subscribe(t.Context(), attempt("key", "A:1"))
	require.ErrorIs(t, err, driver.ErrClosed)
	closeLocker(t, late)
	require.Zero(t, b.remembered())
	require.Empty(t, b.sessions.All())
}
