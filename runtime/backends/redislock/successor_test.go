package redislock

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// setEvictionPolicy limits the memory of a server, and sets its eviction policy.
func setEvictionPolicy(t testing.TB, addr string, policy string) {
	t.Helper()
	command(t, addr, "CONFIG", "SET", "maxmemory", "100mb")
	command(t, addr, "CONFIG", "SET", "maxmemory-policy", policy)
}

// wantUnfit checks that no lock can be acquired because of the eviction policy.
func wantUnfit(t *testing.T, l *lock.Locker, policy string) {
	t.Helper()
	for range 3 {
		err := refused(t, l, nil, newKey(t))
		wantIs(t, err, lock.ErrUnavailable)
		wantIsNot(t, err, lock.ErrIndeterminate)
		if err != nil && !strings.Contains(err.Error(), policy) {
			t.Errorf("err = %v does not name the policy", err)
		}
	}
}

// G14, S36: the eviction policy is checked on each connection, because a server
// that was restarted may have another configuration.
func TestEvictionPolicyAfterARestart(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	addr := server.Addr()
	l := newLocker(t, addr)
	warm(t, l)
	server.Restart()
	setEvictionPolicy(t, addr, "allkeys-lru")
	wantUnfit(t, l, "allkeys-lru")
	if n := len(command(t, addr, "KEYS", "*"+t.Name()+"*").([]any)); n != 0 {
		t.Errorf("%d keys of locks at the server", n)
	}
	command(t, addr, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	_, held := acquire(t, l, nil, newKey(t))

	// A lock that is held there can be released, whatever the policy is by now.
	setEvictionPolicy(t, addr, "allkeys-lfu")
	command(t, addr, "CLIENT", "KILL", "TYPE", "normal")
	mustRelease(t, held)
	if n := len(command(t, addr, "KEYS", t.Name()+"*").([]any)); n != 0 {
		t.Errorf("%d locks left at the server", n)
	}
	wantUnfit(t, l, "allkeys-lfu")
	command(t, addr, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	_, held = acquire(t, l, nil, newKey(t))
	mustRelease(t, held)
}

// G14: a server that takes over from a primary is checked before the first lock there.
func TestEvictionPolicyOfASuccessor(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartSentinel(t)
		a, b := sentinelLockers(t, s)
		warm(t, a)
		warm(t, b)
		for _, replica := range s.Replicas(t.Context()) {
			setEvictionPolicy(t, replica.Addr(), "volatile-lru")
		}
		s.Failover(t.Context())
		for _, l := range []*lock.Locker{a, b} {
			eventually(t, failoverLimit, "the new primary's policy is seen", func() bool {
				_, held, err := l.Acquire(t.Context(), nil, newKey(t))
				if err == nil { // still at the old primary
					held.Release(nil)
				}
				return err != nil && strings.Contains(err.Error(), "volatile-lru")
			})
			wantUnfit(t, l, "volatile-lru")
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testserver.StartCluster(t)
		l, key := clusterLocker(t, c), newKey(t)
		_, held := acquire(t, l, nil, key)
		mustRelease(t, held)
		old := c.NodeFor(key)
		setEvictionPolicy(t, c.Replica(t.Context(), old).Addr(), "volatile-lru")
		old.Kill()
		c.AwaitMaster(t.Context(), key, old)
		err := refused(t, l, nil, key)
		wantIs(t, err, lock.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), "volatile-lru") {
			t.Errorf("err = %v does not name the policy", err)
		}
	})
}

// A batcher that was not used for long is closed, such as one to a node that is no longer a master.
func TestClientsOfDepartedMastersClose(t *testing.T) {
	t.Parallel()
	c := stableCluster(t)
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	var keys []string
	for _, k := range keysAt(t, c, 1) {
		keys = append(keys, k...)
	}
	use := func() map[batcherKey]*batcher {
		for _, key := range keys {
			_, held := acquireSoon(t, l, nil, key)
			mustRelease(t, held)
		}
		b.router.mu.Lock()
		defer b.router.mu.Unlock()
		return maps.Clone(b.router.batchers)
	}
	from := batcherKey{addr: c.NodeFor(keys[0]).Addr()}
	departed := use()[from]
	next := c.Failover(t.Context(), c.NodeFor(keys[0]))
	if all := use(); len(all) != 4 || all[from] != departed {
		t.Fatalf("batchers to %v, want three masters and the former one", all)
	}
	// go-redis asks any node for the map of slots. That node may not know of the failover yet.
	eventually(t, failoverLimit, "the map names the new master", func() bool {
		use()
		_, addr, err := b.router.clientFor(t.Context(), keys[0])
		return err == nil && addr == next.Addr()
	})
	b.router.mu.Lock()
	departed.used = time.Now().Add(-idleLimit)
	b.router.mu.Unlock()
	if _, err := b.router.batcherFor(t.Context(), keys[0], route{}, true); err != nil { // makes a batcher
		t.Fatal(err)
	}
	if all := use(); len(all) != 4 || all[from] != nil || all[batcherKey{addr: next.Addr()}] == nil {
		t.Errorf("batchers to %v", all)
	}
	for _, client := range []*redis.Client{departed.client, departed.standby.client} {
		eventually(t, soon, "the client is closed", func() bool { return errors.Is(client.Ping(t.Context()).Err(), redis.ErrClosed) })
	}
}
