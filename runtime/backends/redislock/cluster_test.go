package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// failoverLimit is how long a test waits for a master to be replaced.
const failoverLimit = 20 * time.Second

func clusterBackend(t testing.TB, c *testserver.Cluster, change ...func(*redis.ClusterOptions)) *Backend {
	o := &redis.ClusterOptions{Addrs: c.Addrs()}
	for _, f := range change {
		f(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return allowSlowAnswers(New(client))
}

// stableCluster starts a Cluster that does not replace a master only because the machine is busy.
func stableCluster(t testing.TB) *testserver.Cluster {
	c := testserver.StartCluster(t)
	onAll(t, c.Addrs(), "CONFIG", "SET", "cluster-node-timeout", longSilence)
	return c
}

func clusterLocker(t testing.TB, c *testserver.Cluster) *lock.Locker {
	return lockerOn(t, clusterBackend(t, c))
}

// keysAt returns n keys for each master.
func keysAt(t testing.TB, c *testserver.Cluster, n int) map[*testserver.Instance][]string {
	t.Helper()
	keys := map[*testserver.Instance][]string{}
	for full := 0; full < 3; {
		key := newKey(t)
		node := c.NodeFor(key)
		if len(keys[node]) == n {
			continue
		}
		keys[node] = append(keys[node], key)
		if len(keys[node]) == n {
			full++
		}
	}
	return keys
}

func otherMaster(t testing.TB, c *testserver.Cluster, key string) *testserver.Instance {
	t.Helper()
	owner := c.NodeFor(key)
	for i := 0; ; i++ {
		if node := c.NodeFor(strconv.Itoa(i)); node != owner {
			return node
		}
	}
}

// probe acquires and releases a lock again and again, until gap is called, which returns
// the longest time between two grants. The leases are short: the new primary may not know of
// a release that the old one has answered. Then it has the lock until the lease ends.
func probe(t testing.TB, l *lock.Locker, key string) (gap func() time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	longest := make(chan time.Duration, 1)
	granted := make(chan struct{}, 1)
	go func() {
		var worst time.Duration
		last := time.Now()
		for ctx.Err() == nil {
			_, held, err := l.Acquire(ctx, ttl(time.Second), key)
			if err == nil {
				worst = max(worst, time.Since(last))
				last = time.Now()
				_ = finish(held)
				select {
				case granted <- struct{}{}:
				default:
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		longest <- worst
	}()
	receive(t, "the first grant", granted)
	return func() time.Duration {
		for range 2 { // the first may have been granted before
			receive(t, "a grant", granted)
		}
		stop()
		return receive(t, "the probe's end", longest)
	}
}

// acquireSoon repeats the acquire until the engine is available again.
func acquireSoon(t testing.TB, l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	t.Helper()
	begin := time.Now()
	for {
		ctx, held, err := l.Acquire(t.Context(), p, key)
		if err == nil {
			return ctx, held
		}
		if !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrIndeterminate) {
			t.Fatalf("acquire during a failover: %v", err)
		}
		if time.Since(begin) > failoverLimit {
			t.Fatalf("no lock within %v: %v", failoverLimit, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// scriptCalls returns how many scripts a node ran.
func scriptCalls(t testing.TB, node *testserver.Instance) int {
	t.Helper()
	return calls(t, node, "evalsha") + calls(t, node, "eval")
}

// calls returns how often a node ran a command.
func calls(t testing.TB, node *testserver.Instance, name string) (n int) {
	t.Helper()
	// A command that has never run has no line.
	_, _ = fmt.Sscanf(infoField(t, node.Addr(), "commandstats", "cmdstat_"+name), "calls=%d", &n)
	return n
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := stableCluster(t)
	t.Run("KeysOfAllMasters", func(t *testing.T) { testClusterKeys(t, c) })
	t.Run("PlainClient", func(t *testing.T) { testClusterPlainClient(t, c) })
	t.Run("Lists", func(t *testing.T) { testClusterList(t, c) })
	t.Run("RenewalsAreBatchedPerSlot", func(t *testing.T) { testClusterRenewals(t, c) })
	t.Run("AThousandKeysOfEachSlot", func(t *testing.T) { testClusterSeveral(t, c) })
	t.Run("AThousandKeysOfAllMasters", func(t *testing.T) { testClusterSpread(t, c) })
	t.Run("S40SeveralOfAMovedSlot", func(t *testing.T) { testClusterSeveralOfAMovedSlot(t, c) })
	t.Run("RedissonIsWoken", func(t *testing.T) { testClusterRedissonIsWoken(t, c) })
	t.Run("WaitersOfOtherProcessesWake", func(t *testing.T) { testClusterWaiting(t, c) })
	t.Run("S40SlotMigratedUnderLocks", func(t *testing.T) { testSlotMigrated(t, c) })
	t.Run("S40HalfMigratedSlot", func(t *testing.T) { testHalfMigrated(t, c) })
	t.Run("S40HalfMigratedList", func(t *testing.T) { testHalfMigratedList(t, c) })
	t.Run("S40RenewalsOfAHalfMigratedSlot", func(t *testing.T) { testHalfMigratedBatch(t, c) })
	t.Run("S40ReleasedDuringMigration", func(t *testing.T) { testReleasedDuringMigration(t, c) })
	t.Run("S40UndoneDuringMigration", func(t *testing.T) { testUndoneDuringMigration(t, c) })
}

func testClusterKeys(t *testing.T, c *testserver.Cluster) {
	opened := lockerOn(t, Open(&redis.UniversalOptions{Addrs: c.Addrs()}))
	made := clusterLocker(t, c)
	for node, keys := range keysAt(t, c, 3) {
		for _, key := range keys {
			begin := time.Now()
			ctx, held := acquire(t, made, nil, key)
			wantIs(t, refused(t, opened, try(), key), lock.ErrNotAcquired)
			for _, name := range []string{key, tokenOf(key)} {
				if !exists(t, node.Addr(), name) && (name == key || time.Since(begin) < tokenLimit) {
					t.Errorf("no %s at the master of %s", name, key)
				}
			}
			first := token(t, ctx)
			mustRelease(t, held)
			ctx, held = acquire(t, opened, try(), key)
			if second := token(t, ctx); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			mustRelease(t, held)
			if exists(t, node.Addr(), key) {
				t.Errorf("%s left behind", key)
			}
		}
	}
}

// G11: the leases of one slot are renewed by one command for each hundred.
func testClusterRenewals(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	var leases []driver.Lease
	var ttls []time.Duration
	masters := keysAt(t, c, 1)
	const same = 150
	for _, tags := range masters {
		for i := range same {
			a := &driver.Acquisition{Key: fmt.Sprintf("%d{%s}", i, tags[0]), ID: newID(), TTL: time.Minute, Tokens: 1}
			l, err := b.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			leases, ttls = append(leases, l), append(ttls, time.Minute)
		}
	}
	if err := errors.Join(b.RenewAll(t.Context(), leases, ttls)...); err != nil { // so that the servers know the script
		t.Fatal(err)
	}
	before := map[*testserver.Instance]int{}
	for node := range masters {
		before[node] = scriptCalls(t, node)
	}
	if err := errors.Join(b.RenewAll(t.Context(), leases, ttls)...); err != nil {
		t.Fatal(err)
	}
	for node := range masters {
		if n := scriptCalls(t, node) - before[node]; n != 2 {
			t.Errorf("%d commands renewed %d leases of one slot, want 2", n, same)
		}
	}
	for _, l := range leases {
		if err := l.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func testClusterWaiting(t *testing.T, c *testserver.Cluster) {
	other := clusterBackend(t, c)
	a, b := clusterLocker(t, c), lockerOn(t, other)
	for node, keys := range keysAt(t, c, 2) {
		for _, key := range keys {
			_, held := acquire(t, a, nil, key)
			waiter := start(t.Context(), b, nil, key)
			queued(t, node.Addr(), key, 1)
			awaitListening(t, other, key)
			begin := time.Now()
			mustRelease(t, held)
			next := receive(t, "the waiter", waiter)
			if next.err != nil {
				t.Fatal(next.err)
			}
			if took := next.at.Sub(begin); took > 300*time.Millisecond+meter.Since(begin) {
				t.Errorf("woken after %v", took)
			}
			mustEnd(t, next)
		}
	}
}

// awaitListening waits until b has a subscription for a waiter for key. One of our processes holds the lock.
func awaitListening(t testing.TB, b *Backend, key string) {
	t.Helper()
	listens(t, b, key, func(w *waiter) bool { return w.processTopic.state == confirmed })
}

// awaitListeningToRedisson is awaitListening for a lock that a client of Redisson holds.
func awaitListeningToRedisson(t testing.TB, b *Backend, key string) {
	t.Helper()
	listens(t, b, key, func(w *waiter) bool {
		return w.processTopic.state == confirmed && w.redisson != nil && w.redisson.state == confirmed
	})
}

func listens(t testing.TB, b *Backend, key string, is func(*waiter) bool) {
	t.Helper()
	eventually(t, soon, "a subscription for "+key, func() bool {
		b.subscriber.mu.Lock()
		defer b.subscriber.mu.Unlock()
		for id, w := range b.subscriber.waiters {
			if id.lock == key {
				return is(w)
			}
		}
		return false
	})
}

// In a Cluster that has sharded channels, Redisson listens only to the lock's sharded channel.
func testClusterRedissonIsWoken(t *testing.T, c *testserver.Cluster) {
	l, key := clusterLocker(t, c), newKey(t)
	client := redis.NewClient(&redis.Options{Addr: c.NodeFor(key).Addr()})
	defer client.Close()
	redisson := client.SSubscribe(t.Context(), channelOf(key))
	defer redisson.Close()
	if _, err := redisson.Receive(t.Context()); err != nil {
		t.Fatalf("no sharded channels, which Redis has since 7.0: %v", err)
	}
	_, held := acquire(t, l, nil, key)
	mustRelease(t, held)
	if m := receive(t, "the notice", redisson.Channel()); m.Payload != "0" {
		t.Errorf("%q", m.Payload)
	}
}

// After its node is gone, a subscriber listens at another node, and waiters are woken again.
func testClusterListenerReturns(t *testing.T, c *testserver.Cluster, a, b *lock.Locker) {
	t.Helper()
	fast := func() bool {
		key := newKey(t)
		_, held := acquireSoon(t, a, nil, key)
		waiter := start(t.Context(), b, nil, key)
		queued(t, c.NodeFor(key).Addr(), key, 1)
		time.Sleep(50 * time.Millisecond)
		begin := time.Now()
		mustRelease(t, held)
		next := receive(t, "the waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustEnd(t, next)
		return next.at.Sub(begin) < 40*time.Millisecond+meter.Since(begin)
	}
	for range 3 { // three times in a row can't be chance
		eventually(t, failoverLimit, "waiters are woken", fast)
	}
}

// To find the right node takes no longer than the caller's context lasts. Here all nodes hang, before the
// client has a map of slots and after.
func TestClusterHungNodes(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t)
	one, other := clusterBackend(t, c), clusterBackend(t, c)
	one.router.directLimit, other.router.directLimit = directLimit, directLimit
	cold, warmed := lockerOn(t, one), lockerOn(t, other)
	for _, keys := range keysAt(t, c, 1) {
		_, held := acquire(t, warmed, nil, keys[0])
		mustRelease(t, held)
	}
	for _, node := range c.Nodes() {
		node.Stop()
	}
	t.Cleanup(func() {
		for _, node := range c.Nodes() {
			node.Cont()
		}
	})
	var all sync.WaitGroup
	for i := range 40 {
		l := []*lock.Locker{cold, warmed}[i%2]
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var at time.Time
			after := time.Duration(20+10*i) * time.Millisecond
			defer time.AfterFunc(after, func() { at = time.Now(); cancel() }).Stop()
			_, _, err := l.Acquire(ctx, nil, newKey(t))
			if late := time.Since(at); late > 100*time.Millisecond+meter.Since(at) {
				t.Errorf("the call ended %v after its context", late)
			}
			wantIs(t, err, context.Canceled)
		})
	}
	all.Wait()
}

func portOf(node *testserver.Instance) string {
	_, port, _ := strings.Cut(node.Addr(), ":")
	return port
}

// copied waits until the master's replica has the lock of key.
func copied(t testing.TB, c *testserver.Cluster, master *testserver.Instance, key string) {
	t.Helper()
	replica, err := testserver.Dial(t.Context(), c.Replica(t.Context(), master).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Close()
	if _, err := replica.Do(t.Context(), "READONLY"); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "the lock is copied", func() bool {
		n, err := replica.Do(t.Context(), "EXISTS", key)
		return err == nil && n == int64(1)
	})
}
