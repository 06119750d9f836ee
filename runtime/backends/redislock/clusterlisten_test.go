package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S44, S53, in a Cluster: waiters learn of releases on either kind of channel, also after
// the slot or its master has moved.
func TestClusterListens(t *testing.T) {
	t.Parallel()
	c := stableCluster(t)
	t.Run("ToBothKindsOfChannel", func(t *testing.T) { testBothKinds(t, c) })
	t.Run("OneConnection", func(t *testing.T) { testOneConnection(t, c) })
	t.Run("S43SubscribersKilled", func(t *testing.T) { testClusterSubscribersKilled(t, c) })
	t.Run("SlotMigrated", func(t *testing.T) { testListensAfterMigration(t, c) })
	t.Run("ShardedDenied", func(t *testing.T) { testShardedDenied(t, c) })
}

// clusterRedisson holds a lock as Redisson does in a Cluster. It announces its release by
// the command that the test names; Redisson itself uses SPUBLISH.
type clusterRedisson struct {
	t   testing.TB
	c   *testserver.Cluster
	key string
}

const redissonOwner = "b983c153-7421-469a-addb-44fb92259a1b:1"

func (r *clusterRedisson) take(ttl time.Duration) {
	r.t.Helper()
	r.at().mustCommand("EVAL", "redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
		"1", r.key, redissonOwner, fmt.Sprint(ttl.Milliseconds()))
}

func (r *clusterRedisson) release(verb string) {
	r.t.Helper()
	r.at().mustCommand("EVAL", "redis.call('DEL', KEYS[1]) return redis.call(ARGV[1], ARGV[2], '0')",
		"1", r.key, verb, channelOf(r.key))
}

func (r *clusterRedisson) at() commander { return commander{r.t, r.c.NodeFor(r.key)} }

type commander struct {
	t    testing.TB
	node *testserver.Instance
}

func (c commander) mustCommand(args ...string) any {
	c.t.Helper()
	return command(c.t, c.node.Addr(), args...)
}

// woken checks that a waiter of b gets the lock soon after Redisson's release.
func woken(t *testing.T, b *Backend, l *lock.Locker, redisson *clusterRedisson, verb string, disturb func()) {
	t.Helper()
	redisson.take(time.Minute)
	waiter := start(t.Context(), l, nil, redisson.key)
	queued(t, redisson.at().node.Addr(), redisson.key, 1)
	awaitListeningToRedisson(t, b, redisson.key)
	if verb == "SPUBLISH" {
		eventually(t, soon, "the sharded channel has a subscriber", func() bool {
			return shardChannels(t, redisson.at().node, redisson.key) == 1
		})
	}
	disturb()
	redisson.release(verb)
	begin := time.Now() // not earlier, because finding the node takes several commands
	next := receive(t, "the waiter", waiter)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
		t.Errorf("woken by %s after %v", verb, took)
	}
	mustEnd(t, next)
}

func testBothKinds(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	for _, keys := range keysAt(t, c, 2) {
		for _, key := range keys {
			for _, verb := range []string{"SPUBLISH", "PUBLISH", "SPUBLISH"} {
				woken(t, b, l, &clusterRedisson{t, c, key}, verb, func() {})
			}
		}
	}
}

// pubsubs returns how many subscriber connections a node has.
func pubsubs(t testing.TB, node *testserver.Instance) int {
	t.Helper()
	return strings.Count(command(t, node.Addr(), "CLIENT", "LIST", "TYPE", "pubsub").(string), "\n")
}

// shardChannels returns how many sharded channels of key have subscribers at node.
func shardChannels(t testing.TB, node *testserver.Instance, key string) int {
	t.Helper()
	return len(command(t, node.Addr(), "PUBSUB", "SHARDCHANNELS", channelOf(key)).([]any))
}

// Waiters for locks that our own processes hold need one connection in all, whichever masters have
// the locks.
func testOneConnection(t *testing.T, c *testserver.Cluster) {
	masters := keysAt(t, c, 10)
	for node := range masters {
		eventually(t, soon, "no other test has a subscription", func() bool { return pubsubs(t, node) == 0 })
	}
	holder, l := clusterLocker(t, c), lockerOn(t, clusterBackend(t, c))
	var held []*lock.Hold
	var waiters []<-chan outcome
	for node, keys := range masters {
		for _, key := range keys {
			_, one := acquire(t, holder, nil, key)
			held = append(held, one)
			waiters = append(waiters, start(t.Context(), l, nil, key))
			queued(t, node.Addr(), key, 1)
		}
	}
	eventually(t, soon, "there is one connection for subscriptions", func() bool {
		n := 0
		for node := range masters {
			n += pubsubs(t, node)
		}
		return n == 1
	})
	for i, one := range held {
		mustRelease(t, one)
		next := receive(t, "a waiter", waiters[i])
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustEnd(t, next)
	}
}

func testClusterSubscribersKilled(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	masters := keysAt(t, c, 2)
	for node, keys := range masters { // keys in different slots
		other := &clusterRedisson{t, c, keys[1]}
		other.take(time.Minute)
		waiter := start(t.Context(), l, nil, other.key)
		awaitListeningToRedisson(t, b, other.key)
		for range 3 {
			redisson := &clusterRedisson{t, c, keys[0]}
			woken(t, b, l, redisson, "SPUBLISH", func() {
				command(t, node.Addr(), "CLIENT", "KILL", "TYPE", "pubsub")
				eventually(t, soon, "subscribed again", func() bool {
					return shardChannels(t, node, keys[0]) == 1 && shardChannels(t, node, keys[1]) == 1
				})
			})
		}
		other.release("SPUBLISH")
		begin := time.Now()
		next := receive(t, "the other waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
			t.Errorf("woken after %v", took)
		}
		mustEnd(t, next)
	}
}

// A waiter learns of a release at the slot's new master.
func testListensAfterMigration(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	redisson := &clusterRedisson{t, c, newKey(t)}
	for range 3 {
		woken(t, b, l, redisson, "SPUBLISH", func() {
			to := otherMaster(t, c, redisson.key)
			c.MigrateSlot(t.Context(), redisson.key, to, true)
			eventually(t, soon, "subscribed at the new master", func() bool { return shardChannels(t, to, redisson.key) == 1 })
		})
	}
	// This time the process learns of the migration only when its subscription is refused.
	c.MigrateSlot(t.Context(), redisson.key, otherMaster(t, c, redisson.key), true)
	woken(t, b, l, redisson, "SPUBLISH", func() {})
}

// If the sharded channel is denied, the plain channel is used, and no call waits
// for the sharded one.
func testShardedDenied(t *testing.T, c *testserver.Cluster) {
	for _, node := range c.Nodes() {
		command(t, node.Addr(), "ACL", "SETUSER", "bob", "on", ">secret", "+@all", "-ssubscribe", "~*", "&*")
	}
	b := clusterBackend(t, c, func(o *redis.ClusterOptions) { o.Username, o.Password = "bob", "secret" })
	l := lockerOn(t, b)
	warm(t, l)
	least := time.Hour // the shortest of three, because one may take long on a busy machine
	for range 3 {
		begin := time.Now()
		redisson := &clusterRedisson{t, c, newKey(t)}
		woken(t, b, l, redisson, "PUBLISH", func() {})
		least = min(least, time.Since(begin)-meter.Since(begin))
		_, held := acquire(t, l, nil, redisson.key)
		other := start(t.Context(), l, nil, redisson.key)
		mustRelease(t, held)
		mustEnd(t, receive(t, "the other", other))
	}
	if least > confirmLimit/2 {
		t.Errorf("the fastest of three took %v", least)
	}
}

// In a Cluster without sharded channels (Redis 6.2), processes subscribe to the plain
// channels, and no call waits for the others.
func TestClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--rename-command", "SSUBSCRIBE", "", "--rename-command", "SPUBLISH", "")
	addr := server.Addr()
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}})
	defer client.Close()
	b := New(client)
	l, other := lockerOn(t, b), lockerOn(t, New(client))
	least := time.Hour // the shortest of three, because one may take long on a busy machine
	for range 3 {
		key := newKey(t)
		_, held := acquire(t, other, nil, key)
		begin := time.Now()
		waiter := start(t.Context(), l, nil, key)
		awaitListening(t, b, key)
		least = min(least, time.Since(begin)-meter.Since(begin))
		begin = time.Now()
		mustRelease(t, held)
		next := receive(t, "the waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
			t.Errorf("woken after %v", took)
		}
		mustEnd(t, next)
	}
	if least > confirmLimit/2 {
		t.Errorf("the fastest of three subscriptions took %v", least)
	}
}
