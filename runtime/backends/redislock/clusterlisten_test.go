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

// S44, S53, in a Cluster: releases are heard of whichever kind of channel they
// are announced on, also after the slot or its master has changed places.
func TestClusterListens(t *testing.T) {
	t.Parallel()
	c := unhurriedCluster(t)
	t.Run("ToBothKindsOfChannel", func(t *testing.T) { testBothKinds(t, c) })
	t.Run("OneConnection", func(t *testing.T) { testOneConnection(t, c) })
	t.Run("S43SubscribersKilled", func(t *testing.T) { testClusterSubscribersKilled(t, c) })
	t.Run("SlotMigrated", func(t *testing.T) { testListensAfterMigration(t, c) })
	t.Run("ShardedDenied", func(t *testing.T) { testShardedDenied(t, c) })
}

// clusteredJava is a holder as Redisson is one in a Cluster: it announces its
// release by SPUBLISH, and by nothing else.
type clusteredJava struct {
	t   testing.TB
	c   *testserver.Cluster
	key string
}

const javaOwner = "b983c153-7421-469a-addb-44fb92259a1b:1"

func (r *clusteredJava) take(ttl time.Duration) {
	r.t.Helper()
	r.at().mustCommand("EVAL", "redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
		"1", r.key, javaOwner, fmt.Sprint(ttl.Milliseconds()))
}

func (r *clusteredJava) release(verb string) {
	r.t.Helper()
	r.at().mustCommand("EVAL", "redis.call('DEL', KEYS[1]) return redis.call(ARGV[1], ARGV[2], '0')",
		"1", r.key, verb, channelOf(r.key))
}

func (r *clusteredJava) at() commander { return commander{r.t, r.c.NodeFor(r.key)} }

type commander struct {
	t    testing.TB
	node *testserver.Instance
}

func (c commander) mustCommand(args ...string) any {
	c.t.Helper()
	return command(c.t, c.node.Addr(), args...)
}

// woken checks that a waiter of b gets the lock soon after Redisson's release.
func woken(t *testing.T, b *Backend, l *lock.Locker, java *clusteredJava, verb string, disturb func()) {
	t.Helper()
	java.take(time.Minute)
	waiter := start(t.Context(), l, nil, java.key)
	queued(t, java.at().node.Addr(), java.key, 1)
	awaitListeningToRedisson(t, b, java.key)
	if verb == "SPUBLISH" {
		eventually(t, soon, "it listens to the sharded channel", func() bool { return shardChannels(t, java.at().node, java.key) == 1 })
	}
	disturb()
	java.release(verb)
	begin := time.Now() // not before, since to find the node takes several commands
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
				woken(t, b, l, &clusteredJava{t, c, key}, verb, func() {})
			}
		}
	}
}

// pubsubs returns how many subscriber connections a node has.
func pubsubs(t testing.TB, node *testserver.Instance) int {
	t.Helper()
	return strings.Count(command(t, node.Addr(), "CLIENT", "LIST", "TYPE", "pubsub").(string), "\n")
}

// shardChannels returns how many sharded channels of a test's keys a node has.
func shardChannels(t testing.TB, node *testserver.Instance, key string) int {
	t.Helper()
	return len(command(t, node.Addr(), "PUBSUB", "SHARDCHANNELS", channelOf(key)).([]any))
}

// Those that wait for each other need one connection in all, whichever masters have the locks.
func testOneConnection(t *testing.T, c *testserver.Cluster) {
	masters := keysAt(t, c, 10)
	for node := range masters {
		eventually(t, soon, "nobody else listens", func() bool { return pubsubs(t, node) == 0 })
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
	eventually(t, soon, "there is one connection", func() bool {
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
		other := &clusteredJava{t, c, keys[1]}
		other.take(time.Minute)
		waiter := start(t.Context(), l, nil, other.key)
		awaitListeningToRedisson(t, b, other.key)
		for range 3 {
			java := &clusteredJava{t, c, keys[0]}
			woken(t, b, l, java, "SPUBLISH", func() {
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

// Whoever waits hears of a release at the slot's new master.
func testListensAfterMigration(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	java := &clusteredJava{t, c, newKey(t)}
	for range 3 {
		woken(t, b, l, java, "SPUBLISH", func() {
			to := otherMaster(t, c, java.key)
			c.MigrateSlot(t.Context(), java.key, to, true)
			eventually(t, soon, "subscribed at the new master", func() bool { return shardChannels(t, to, java.key) == 1 })
		})
	}
	// One that learns it only from the refusal of its subscription.
	c.MigrateSlot(t.Context(), java.key, otherMaster(t, c, java.key), true)
	woken(t, b, l, java, "SPUBLISH", func() {})
}

// Where the sharded channel is denied, the plain one does, and nobody waits
// for the other.
func testShardedDenied(t *testing.T, c *testserver.Cluster) {
	for _, node := range c.Nodes() {
		command(t, node.Addr(), "ACL", "SETUSER", "bob", "on", ">secret", "+@all", "-ssubscribe", "~*", "&*")
	}
	b := clusterBackend(t, c, func(o *redis.ClusterOptions) { o.Username, o.Password = "bob", "secret" })
	l := lockerOn(t, b)
	warm(t, l)
	least := time.Hour // of three: on a busy machine one may take long
	for range 3 {
		begin := time.Now()
		java := &clusteredJava{t, c, newKey(t)}
		woken(t, b, l, java, "PUBLISH", func() {})
		least = min(least, time.Since(begin)-meter.Since(begin))
		_, held := acquire(t, l, nil, java.key)
		other := start(t.Context(), l, nil, java.key)
		mustRelease(t, held)
		mustEnd(t, receive(t, "the other", other))
	}
	if least > confirmLimit/2 {
		t.Errorf("it took %v at least", least)
	}
}

// A Cluster without sharded channels (Redis 6.2) is listened to on the plain
// ones, and nobody waits for the others.
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
	least := time.Hour // of three: on a busy machine one may take long
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
		t.Errorf("subscribed after %v at least", least)
	}
}
