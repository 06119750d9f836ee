package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// mostCommands is how many commands it may take to acquire, or to release, a thousand keys of one slot.
const mostCommands = 12

// several returns requests for n keys of one slot.
func several(tag string, n int, p *lock.Policy) []lock.Request {
	reqs := make([]lock.Request, n)
	for i := range reqs {
		reqs[i] = lock.Request{Policy: p, Key: fmt.Sprintf("stock:{%s}:%03d", tag, i)}
	}
	return reqs
}

// anyLeft reports whether one of reqs is held or waited for.
func anyLeft(t *testing.T, addr string, reqs []lock.Request) bool {
	t.Helper()
	var keys []string
	for _, r := range reqs {
		keys = append(keys, r.Key, "lockgen:queue:"+r.Key+":")
	}
	return existing(t, addr, keys...) > 0
}

// nothingIsLeft waits until none of reqs is held or waited for. A release may continue
// after its caller has returned.
func nothingIsLeft(t *testing.T, addr string, reqs []lock.Request) {
	t.Helper()
	eventually(t, soon, "no lock and no queue is left", func() bool { return !anyLeft(t, addr, reqs) })
}

// A server that has never been asked for a lock runs as few commands for a thousand keys as
// any other server.
func TestAThousandKeysOfANewServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	l, reqs := newLocker(t, server.Addr()), several(newKey(t), 1000, nil)
	_, held, err := l.AcquireAll(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	took := scriptCalls(t, server)
	mustRelease(t, held)
	freed := scriptCalls(t, server) - took
	t.Logf("%d commands to take, %d to free", took, freed)
	if took > mostCommands || freed > mostCommands {
		t.Errorf("%d commands to take and %d to free, want %d at most", took, freed, mostCommands)
	}
	nothingIsLeft(t, server.Addr(), reqs)
}

// testClusterSeveral takes a thousand keys of each of two slots at each master. The call takes the
// keys of the two slots in turn.
func testClusterSeveral(t *testing.T, c *testserver.Cluster) {
	l := clusterLocker(t, c)
	var reqs []lock.Request
	masters, of := keysAt(t, c, 2), map[string][]lock.Request{}
	for _, tags := range masters {
		for i := range 1000 {
			for _, tag := range tags {
				of[tag] = append(of[tag], lock.Request{Key: fmt.Sprintf("%03d{%s}", i, tag)})
				reqs = append(reqs, of[tag][i])
			}
		}
	}
	did := map[*testserver.Instance]int{}
	begin := time.Now()
	sent := func(what string) {
		for node := range masters {
			n := scriptCalls(t, node)
			if t.Logf("%s: %d commands", what, n-did[node]); tooMany(n-did[node], 2*mostCommands, begin) {
				t.Errorf("%s: %d commands at one master, want %d at most", what, n-did[node], 2*mostCommands)
			}
			did[node] = n
		}
		begin = time.Now()
	}
	for node := range masters {
		did[node] = scriptCalls(t, node)
	}
	_, held, err := l.AcquireAll(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	sent("take")
	for node, tags := range masters {
		if key := of[tags[1]][999].Key; !exists(t, node.Addr(), key) {
			t.Errorf("%s is not held", key)
		}
	}
	mustRelease(t, held)
	sent("free")
	for node, tags := range masters {
		for _, tag := range tags {
			nothingIsLeft(t, node.Addr(), of[tag])
		}
	}
}

// tooMany reports whether n commands, or round trips, since begin are none or more than most. Commands
// that a slow machine was too late with are sent again, and don't count.
func tooMany(n, most int, begin time.Time) bool {
	return n == 0 || n > most && meter.Since(begin) < failoverTimeout
}

// testClusterSpread takes a thousand keys without a tag, which are in many slots of three masters.
// The keys of a script must share a slot, so each master runs one script for each slot.
// The scripts for a master are sent in a few pipelines.
func testClusterSpread(t *testing.T, c *testserver.Cluster) {
	client, sentAsOne := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), new(trips)
	t.Cleanup(func() { _ = client.Close() })
	l, name := lockerOn(t, allowSlowAnswers(New(client, Options{Hooks: []redis.Hook{sentAsOne}}))), newKey(t)
	for _, keys := range keysAt(t, c, 1) {
		_, held := acquire(t, l, nil, keys[0])
		mustRelease(t, held)
	}
	var reqs []lock.Request
	slots, one := map[*testserver.Instance]map[int]bool{}, map[*testserver.Instance]string{}
	for i := range 1000 {
		key := fmt.Sprintf("%s:%d", name, i)
		node := c.NodeFor(key)
		if slots[node] == nil {
			slots[node] = map[int]bool{}
		}
		slots[node][slot(key)], one[node] = true, key
		reqs = append(reqs, lock.Request{Key: key})
	}
	if len(slots) != 3 {
		t.Fatalf("the keys are at %d masters, want 3", len(slots))
	}
	did := map[*testserver.Instance]int{}
	count := func(what string, do func()) {
		begin := time.Now()
		for node := range slots {
			did[node] = scriptCalls(t, node)
		}
		sentAsOne.Store(0)
		do()
		trips := sentAsOne.Load()
		for node, of := range slots {
			n := scriptCalls(t, node) - did[node]
			t.Logf("%s: %d commands for %d slots of a master", what, n, len(of))
			if tooMany(n, len(of)+mostCommands, begin) { // a script that a server does not know is sent twice
				t.Errorf("%s: %d commands at a master, want one for each of its %d slots", what, n, len(of))
			}
		}
		if t.Logf("%s: %d round trips to 3 masters", what, trips); tooMany(int(trips), 3*mostCommands, begin) {
			t.Errorf("%s: %d round trips, want %d at most", what, trips, 3*mostCommands)
		}
	}
	var held *lock.Hold
	count("take", func() {
		var err error
		if _, held, err = l.AcquireAll(t.Context(), reqs...); err != nil {
			t.Fatal(err)
		}
	})
	for node, key := range one {
		if !exists(t, node.Addr(), key) {
			t.Errorf("%s is not held", key)
		}
	}
	count("free", func() { mustRelease(t, held) })
	for i := 0; i < len(reqs); i += 20 {
		key := reqs[i].Key
		eventually(t, soon, "the key is free", func() bool { return !exists(t, c.NodeFor(key).Addr(), key) })
	}
}

// When a slot moves while its locks are held, each of the releases follows it.
func testClusterSeveralOfAMovedSlot(t *testing.T, c *testserver.Cluster) {
	l, tag := clusterLocker(t, c), newKey(t)
	reqs := several(tag, 300, nil)
	for range 2 {
		_, held, err := l.AcquireAll(t.Context(), reqs...)
		if err != nil {
			t.Fatal(err)
		}
		c.MigrateSlot(t.Context(), tag, otherMaster(t, c, tag), true)
		mustRelease(t, held)
		nothingIsLeft(t, c.NodeFor(tag).Addr(), reqs)
	}
}

// All or none: while another process holds one of a thousand keys, the keys behind it are not held. When
// the caller gives up, no key is held.
func TestOneOfAThousandIsHeld(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l, reqs := newLocker(t, addr), several(newKey(t), 1000, nil)
	_, theirs := acquire(t, newLocker(t, addr), nil, reqs[500].Key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := l.AcquireAll(ctx, reqs...)
		done <- err
	}()
	queue := "lockgen:queue:" + reqs[500].Key + ":"
	eventually(t, soon, "the call waits for the one, and holds those before it", func() bool {
		return exists(t, addr, queue) && exists(t, addr, reqs[499].Key) && !exists(t, addr, reqs[501].Key) && !exists(t, addr, reqs[999].Key)
	})
	cancel()
	err := receive(t, "the end of the wait", done)
	wantGaveUp(t, err)
	wantIs(t, err, context.Canceled)
	var where *lock.Error
	if !errors.As(err, &where) || where.Key != reqs[500].Key {
		t.Errorf("the error names no key: %v", err)
	}
	eventually(t, soon, "the call has left the queue", func() bool { return !exists(t, addr, queue) })
	eventually(t, soon, "the first is free", func() bool { return !exists(t, addr, reqs[0].Key) })
	mustRelease(t, theirs)
	eventually(t, soon, "nothing is held", func() bool { return !anyLeft(t, addr, reqs) })
}

// together matches the command for several locks, one of which is key.
func together(key string) faultproxy.Match {
	return either(
		faultproxy.Command("evalsha", togetherScript.hash, key),
		faultproxy.Command("eval", togetherScript.source, key),
	)
}

// S12, S16: the reply to one of the commands, in the middle, is lost. The command is sent
// again, and each lock is held once.
func TestLostReplyForSeveral(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, reqs := newLocker(t, p.Addr()), several(newKey(t), 1000, nil)
	warm(t, l)
	lost := p.Swallow(1, together(reqs[500].Key))
	_, held, err := l.AcquireAll(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "the lost reply", lost)
	for _, i := range []int{0, 499, 500, 501, 999} {
		heldOnce(t, server, reqs[i].Key)
	}
	lost = p.Swallow(1, together(reqs[500].Key))
	mustRelease(t, held)
	receive(t, "the lost reply", lost)
	nothingIsLeft(t, server, reqs)
}

// S14: no reply arrives any more. What was taken is undone as soon as the server can be reached.
func TestUnknownOutcomeOfSeveral(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, reqs := newLocker(t, p.Addr(), readTimeout(brief)), several(newKey(t), 300, nil)
	warm(t, l)
	p.Hole(faultproxy.Replies)
	_, _, err := l.AcquireAll(t.Context(), reqs...)
	wantIs(t, err, lock.ErrIndeterminate)
	p.Heal()
	eventually(t, soon, "all are free", func() bool { return !anyLeft(t, server, reqs) })
	_, held, err := newLocker(t, server).AcquireAll(t.Context(), reqs...)
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, held)
}

// An error of one of several keys fails no other key. Some of these keys can't be sent at all.
func TestSeveralWithAWrongOne(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	right, wrong, foreign, long := newKey(t), "}{", newKey(t), newKey(t)
	command(t, addr, "SET", foreign, "a string")
	var as []*driver.Acquisition
	for _, key := range []string{right, wrong, foreign, long} {
		as = append(as, &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1})
	}
	as[3].TTL = 2 * maxTTL
	leases, errs := b.AcquireAll(t.Context(), as)
	for i, want := range []error{nil, driver.ErrInvalid, driver.ErrConflict, driver.ErrInvalid} {
		if !errors.Is(errs[i], want) || (leases[i] != nil) != (want == nil) {
			t.Errorf("%s: %v, %v; want %v", as[i].Key, leases[i], errs[i], want)
		}
	}
	if errs := b.ReleaseAll(t.Context(), leases[:1], []uint64{1}); errs[0] != nil {
		t.Error(errs)
	}
	if errs := b.ReleaseAll(t.Context(), leases[:1], []uint64{1}); !errors.Is(errs[0], driver.ErrLost) {
		t.Errorf("a second release: %v", errs)
	}
	command(t, addr, "DEL", foreign)
}
