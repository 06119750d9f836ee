package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// newCluster starts a cluster. Only one runs at a time, because other clusters and tests would
// slow down its elections.
func newCluster(t *testing.T, args ...string) *testserver.EtcdCluster {
	t.Helper()
	return testserver.StartEtcdCluster(t, args...)
}

// S67: the leader is killed. The holder keeps the lock, and the waiter gets it later. Other calls
// wait for the election, or return an error that etcd does not serve.
func TestLeaderKilled(t *testing.T) {
	cluster := newCluster(t)
	one, two := newLocker(t, cluster.Addrs()...), newLocker(t, cluster.Addrs()...)
	const lease = 8 * time.Second
	ctx, held := acquire(t, one, ttl(lease), "key")
	waiting := start(t.Context(), two, ttl(lease), "key")
	c := newClient(t, cluster.Addrs())
	queued(t, c, "key", 2)
	before := token(t, ctx)
	leader := cluster.Leader(t.Context())
	leader.Kill()
	inner, other := acquire(t, one, ttl(lease), "other") // waits for the election
	require.NoError(t, lock.Check(inner))
	require.NoError(t, finish(other))
	time.Sleep(lease) // longer than two intervals of keep-alives
	require.NoError(t, lock.Check(ctx))
	require.Empty(t, waiting)
	require.NoError(t, finish(held))
	got := receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.Greater(t, token(t, got.ctx), before)
	leader.Restart()
	require.NoError(t, finish(got.held))
	nothingLeft(t, c, "key")
}

// If the member that a client uses does not answer, the client asks the others.
func TestMemberStopped(t *testing.T) {
	cluster := newCluster(t, "--heartbeat-interval", "50", "--election-timeout", "500") // so that a busy machine causes no election
	b := New(newClient(t, cluster.Addrs()))
	l := lockerOn(t, b)
	const lease = 15 * time.Second // far longer than the leader is frozen, even on a busy machine
	ctx, held := acquire(t, l, ttl(lease), "key")
	for _, member := range cluster.Members() {
		leads := member == cluster.Leader(t.Context())
		member.Stop()
		for range 2 { // each takes two requests, so that the requests go to all three members
			_, again := acquire(t, l, ttl(lease), "other")
			require.NoError(t, finish(again))
		}
		if !leads { // a leader that is frozen for longer than a session would end the session: see the package's doc
			for _, s := range b.sessions.All() {
				before := s.Deadline()
				s.Ask()
				eventually(t, "a keep-alive", func() bool { return before.Before(s.Deadline()) })
			}
		}
		require.NoError(t, lock.Check(ctx))
		member.Cont()
		cluster.Leader(t.Context())
	}
	require.NoError(t, finish(held))
}

// S67: no quorum. A hold that is not known to be lost ends at its deadline. An acquire
// fails at the latest when its context ends.
func TestNoQuorum(t *testing.T) {
	cluster := newCluster(t)
	leader := cluster.Leader(t.Context())
	members := slices.DeleteFunc(slices.Clone(cluster.Members()), func(m *testserver.Instance) bool { return m == leader })
	// A client of the minority alone.
	l := newLocker(t, leader.Addr())
	const lease = 1500 * time.Millisecond
	ctx, held := acquire(t, l, ttl(lease), "key")
	before := token(t, ctx)
	for _, m := range members {
		m.Stop()
	}
	begin := time.Now()
	for _, limit := range []time.Duration{50 * time.Millisecond, 700 * time.Millisecond} {
		short, cancel := context.WithTimeout(t.Context(), limit)
		begin := time.Now()
		_, _, err := l.Acquire(short, nil, "other")
		cancel()
		require.Less(t, time.Since(begin), limit+100*time.Millisecond+meter.Since(begin))
		require.True(t, errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate), "%v", err)
	}
	requireLost(t, ctx, begin, 2*time.Second)
	err := rejected(t, l, nil, "other")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "no leader")
	for _, m := range members {
		m.Cont()
	}
	cluster.Leader(t.Context())
	inner, again := acquire(t, newLocker(t, cluster.Addrs()...), nil, "key")
	require.Greater(t, token(t, inner), before)
	require.ErrorIs(t, finish(held), lock.ErrLost)
	require.NoError(t, lock.Check(inner))
	require.NoError(t, finish(again))
}

// A client is cut off with its member, while the majority continues. Another client
// gets the lock after the first has lost it by its own deadline, and not before (G1, G2).
func TestMinority(t *testing.T) {
	cluster := newCluster(t)
	leader := cluster.Leader(t.Context())
	l := newLocker(t, leader.Addr())
	var others []string
	for _, m := range cluster.Members() {
		if m != leader {
			others = append(others, m.Addr())
		}
	}
	const lease = 1500 * time.Millisecond
	ctx, held := acquire(t, l, ttl(lease), "key")
	waiting := start(t.Context(), newLocker(t, others...), nil, "key")
	queued(t, newClient(t, others), "key", 2)
	leader.Stop()
	begin := time.Now()
	select {
	case <-ctx.Done():
	case got := <-waiting:
		require.Fail(t, "two hold the key at once", "%v", got.err)
	}
	require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin))
	got := receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.Greater(t, token(t, got.ctx), token(t, ctx))
	leader.Cont()
	require.ErrorIs(t, finish(held), lock.ErrLost)
	time.Sleep(500 * time.Millisecond)
	require.NoError(t, lock.Check(got.ctx), "late requests must not free the next holder's lock")
	require.NoError(t, finish(got.held))
}

// During elections and restarts there are never two holders, and tokens rise. Afterwards
// acquires succeed again.
func TestExclusionThroughElections(t *testing.T) {
	cluster := newCluster(t)
	var mu sync.Mutex // guards the test's own record
	holders, sections, last := map[int]context.Context{}, 0, uint64(0)
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for g := range 4 {
		l := newLocker(t, cluster.Addrs()...)
		all.Go(func() {
			for stop.Err() == nil {
				_ = l.Do(stop, ttl(2*time.Second), "key", func(ctx context.Context) error {
					mu.Lock()
					for other, theirs := range holders {
						if lock.Check(theirs) == nil && lock.Check(ctx) == nil {
							t.Errorf("%d and %d are inside at the same time", g, other)
						}
					}
					if now, _ := lock.Token(ctx); now <= last {
						t.Errorf("token %d after token %d", now, last)
					} else {
						last = now
					}
					holders[g] = ctx
					sections++
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					mu.Lock()
					delete(holders, g)
					mu.Unlock()
					return nil
				})
			}
		})
	}
	for range 3 {
		leader := cluster.Leader(t.Context())
		leader.Kill()
		cluster.Leader(t.Context())
		time.Sleep(300 * time.Millisecond)
		leader.Restart()
		leader = cluster.Leader(t.Context())
		leader.Stop()
		time.Sleep(700 * time.Millisecond)
		leader.Cont()
	}
	mu.Lock()
	before := sections
	mu.Unlock()
	eventually(t, "acquires succeed again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return sections > before+10
	})
	cancel()
	all.Wait()
	nothingLeft(t, newClient(t, cluster.Addrs()), "key")
	t.Logf("%d critical sections ran", sections)
}

// S24, S43 with one member: its clients' connections are cut again and again.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	proxy, key := faultproxy.NewStream(t, shared(t)), newKey(t)
	l, other := newLocker(t, proxy.Addr()), newLocker(t, shared(t))
	ctx, held := acquire(t, l, ttl(9*time.Second), key+":held")
	for range 10 {
		_, theirs := acquire(t, other, nil, key)
		waiting := start(t.Context(), l, nil, key)
		queued(t, admin(t, shared(t)), key, 2)
		proxy.Reset()
		begin := time.Now()
		require.NoError(t, finish(theirs))
		got := receive(t, "the lock", waiting)
		require.NoError(t, got.err)
		require.Less(t, got.at.Sub(begin), time.Second+200*time.Millisecond+meter.Since(begin))
		require.NoError(t, finish(got.held))
	}
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, finish(held))
}
