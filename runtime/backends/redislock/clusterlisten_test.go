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
	"github.com/lockgen/lockgen/runtime/driver"
)

// S44, S53, in a Cluster: releases are heard of whichever kind of channel they
// are announced on, also after the slot or its master has changed places.
func TestClusterListens(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t)
	t.Run("ToBothKindsOfChannel", func(t *testing.T) { testBothKinds(t, c) })
	t.Run("OneNoticeForOneProcess", func(t *testing.T) { testCopiesOfANotice(t, c) })
	t.Run("OneConnectionForEachMaster", func(t *testing.T) { testConnectionsPerMaster(t, c) })
	t.Run("S43SubscribersKilled", func(t *testing.T) { testClusterSubscribersKilled(t, c) })
	t.Run("SlotMigrated", func(t *testing.T) { testListensAfterMigration(t, c) })
	t.Run("ReleasedAsTheSlotMoves", func(t *testing.T) { testReleasedAsTheSlotMoves(t, c) })
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
	awaitListening(t, b, java.key)
	disturb()
	begin := time.Now()
	java.release(verb)
	next := receive(t, "the waiter", waiter)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
		t.Errorf("woken by %s after %v", verb, took)
	}
	mustRelease(t, next.held)
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

// Of a release that is announced on both, each process's waiter is told once,
// and only that of the process whose turn it is.
func testCopiesOfANotice(t *testing.T, c *testserver.Cluster) {
	b, key := clusterBackend(t, c), newKey(t)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	first, second := &driver.Acquisition{Key: key, ID: newID()}, &driver.Acquisition{Key: key, ID: newID()}
	var all [2]driver.Subscription
	for i, a := range []*driver.Acquisition{first, second} {
		s, err := b.Subscribe(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all[i] = s
	}
	node, k := commander{t, c.NodeFor(key)}, keys{lock: key, queue: queueOf(key), channel: channelOf(key)}
	java := &clusteredJava{t, c, key}
	for range 5 {
		java.take(time.Minute)
		node.mustCommand("DEL", k.queue)
		node.mustCommand("ZADD", k.queue, "1", process(first.ID), "2", process(second.ID))
		if _, _, err := b.free(t.Context(), key, freeing{}.request(k, javaOwner), 0); err != nil {
			t.Fatal(err)
		}
		receive(t, "the notice", all[0].C())
		begin := time.Now()
		select {
		case <-all[0].C():
			t.Error("told twice")
		case <-all[1].C():
			if time.Since(begin) < turnLimit/2 {
				t.Error("told of another's turn")
			}
		case <-time.After(100 * time.Millisecond):
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

func testConnectionsPerMaster(t *testing.T, c *testserver.Cluster) {
	masters := keysAt(t, c, 10)
	before := map[*testserver.Instance]int{}
	for node := range masters {
		eventually(t, soon, "nobody else listens", func() bool { return pubsubs(t, node) == 0 })
		before[node] = 0
	}
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	var waiters []<-chan outcome
	for _, keys := range masters {
		for _, key := range keys {
			(&clusteredJava{t, c, key}).take(time.Minute)
			waiters = append(waiters, start(t.Context(), l, nil, key))
		}
	}
	for node, keys := range masters {
		for _, key := range keys {
			awaitListening(t, b, key)
			if n := shardChannels(t, node, key); n != 1 {
				t.Errorf("%d sharded channels for %s at its master", n, key)
			}
		}
		if n := pubsubs(t, node); n != 1 {
			t.Errorf("%d subscriber connections to a master, want 1", n)
		}
	}
	for _, keys := range masters {
		for _, key := range keys {
			(&clusteredJava{t, c, key}).release("SPUBLISH")
		}
	}
	for _, w := range waiters {
		next := receive(t, "a waiter", w)
		if next.err != nil {
			t.Fatal(next.err)
		}
		mustRelease(t, next.held)
	}
	for node, keys := range masters { // lingers, and is left
		for _, key := range keys {
			eventually(t, soon, "no channel left", func() bool { return shardChannels(t, node, key) == 0 })
		}
	}
}

func testClusterSubscribersKilled(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	l := lockerOn(t, b)
	masters := keysAt(t, c, 2)
	for node, keys := range masters { // keys in different slots, on one connection
		other := &clusteredJava{t, c, keys[1]}
		other.take(time.Minute)
		waiter := start(t.Context(), l, nil, other.key)
		awaitListening(t, b, other.key)
		for range 3 {
			java := &clusteredJava{t, c, keys[0]}
			woken(t, b, l, java, "SPUBLISH", func() {
				command(t, node.Addr(), "CLIENT", "KILL", "TYPE", "pubsub")
				eventually(t, soon, "subscribed again", func() bool {
					return shardChannels(t, node, keys[0]) == 1 && shardChannels(t, node, keys[1]) == 1
				})
			})
		}
		begin := time.Now()
		other.release("SPUBLISH")
		next := receive(t, "the other waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
			t.Errorf("woken after %v", took)
		}
		mustRelease(t, next.held)
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

// A release that is sent to where the slot is going is announced there, and
// those who are subscribed where it comes from hear of it on the plain channel.
func testReleasedAsTheSlotMoves(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	a := &driver.Acquisition{Key: newKey(t), ID: newID()}
	s, err := b.Subscribe(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to := otherMaster(t, c, a.Key)
	java := &clusteredJava{t, c, a.Key}
	java.take(time.Minute)
	c.MigrateSlot(t.Context(), a.Key, to, false)
	command(t, to.Addr(), "PUBLISH", channelOf(a.Key), process(a.ID))
	receive(t, "the notice", s.C())
	c.MigrateSlot(t.Context(), a.Key, to, true)
	receive(t, "the notice after the gap", s.C())
	command(t, to.Addr(), "DEL", a.Key)
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
	for range 3 {
		begin := time.Now()
		java := &clusteredJava{t, c, newKey(t)}
		woken(t, b, l, java, "PUBLISH", func() {})
		if took := time.Since(begin); took > confirmLimit/2+meter.Since(begin) {
			t.Errorf("it took %v", took)
		}
		_, held := acquire(t, l, nil, java.key)
		other := start(t.Context(), l, nil, java.key)
		mustRelease(t, held)
		mustRelease(t, receive(t, "the other", other).held)
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
	for range 3 {
		key := newKey(t)
		_, held := acquire(t, other, nil, key)
		begin := time.Now()
		waiter := start(t.Context(), l, nil, key)
		awaitListening(t, b, key)
		if took := time.Since(begin); took > confirmLimit/2+meter.Since(begin) {
			t.Errorf("subscribed after %v", took)
		}
		begin = time.Now()
		mustRelease(t, held)
		next := receive(t, "the waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if took := next.at.Sub(begin); took > 200*time.Millisecond+meter.Since(begin) {
			t.Errorf("woken after %v", took)
		}
		mustRelease(t, next.held)
	}
	b.listener.mu.Lock()
	defer b.listener.mu.Unlock()
	if len(b.listener.ears) != 1 {
		t.Fatalf("%d connections to listen on", len(b.listener.ears))
	}
	for _, e := range b.listener.ears {
		if !e.unsharded {
			t.Error("asked for sharded channels again and again")
		}
	}
}
