package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// S40, MOVED: a lock can be renewed, waited for and released after its slot has moved.
func testSlotMigrated(t *testing.T, c *testserver.Cluster) {
	a, b := clusterLocker(t, c), clusterLocker(t, c)
	key := newKey(t)
	ctx, held := acquire(t, a, ttl(3*time.Second), key)
	first := token(t, ctx)
	waiter := start(t.Context(), b, nil, key)
	queued(t, c.NodeFor(key).Addr(), key, 1)

	to := otherMaster(t, c, key)
	c.MigrateSlot(t.Context(), key, to, true)
	if !exists(t, to.Addr(), key) {
		t.Fatal("the lock did not move")
	}
	awaitRenewal(t, held) // at the new master
	wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
	mustRelease(t, held)
	next := receive(t, "the waiter", waiter)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if second := token(t, next.ctx); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	mustEnd(t, next)
}

// S40, ASK and TRYAGAIN: the lock has moved, but its token key has not.
func testHalfMigrated(t *testing.T, c *testserver.Cluster) {
	a, b := clusterLocker(t, c), clusterLocker(t, c)
	key := newKey(t)
	const lease = 10 * time.Second
	ctx, held := acquire(t, a, ttl(lease), key)
	first := token(t, ctx)
	to := otherMaster(t, c, key)
	c.MigrateSlot(t.Context(), key, to, false)

	err := refused(t, b, try(), key)
	wantIs(t, err, lock.ErrUnavailable)
	wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrIndeterminate)
	if err := lock.Check(ctx); err != nil {
		t.Errorf("lost: %v", err)
	}

	// A call for another lock of the slot, which may wait, waits for the end of the move.
	other := start(t.Context(), b, nil, key+"{"+key+"}")
	time.Sleep(time.Second)
	select {
	case early := <-other:
		t.Fatalf("before the move ended: %v", early.err)
	default:
	}
	c.MigrateSlot(t.Context(), key, to, true)
	next := receive(t, "the other lock of the slot", other)
	if next.err != nil {
		t.Fatal(next.err)
	}
	mustEnd(t, next)
	wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
	mustRelease(t, held)
	ctx, held = acquire(t, b, try(), key)
	if second := token(t, ctx); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	mustRelease(t, held)
}

// S40: locks of a slot that is moving are listed like the others.
func testHalfMigratedList(t *testing.T, c *testserver.Cluster) {
	b, tag := clusterBackend(t, c), newKey(t)
	l := lockerOn(t, b)
	for i := range 3 {
		_, held := acquire(t, l, nil, fmt.Sprintf("%d{%s}", i, tag))
		defer mustRelease(t, held)
	}
	moved, to := "1{"+tag+"}", otherMaster(t, c, tag)
	c.MigrateSlot(t.Context(), moved, to, false)
	for range 3 {
		if all := list(t, b, "*{"+tag+"}"); len(all) != 3 || len(all[moved].Holders) != 1 {
			t.Errorf("listed: %v", all)
		}
	}
	c.MigrateSlot(t.Context(), moved, to, true)
}

// S40: the leases of a slot that is moving are renewed, each at the master that has
// its lock.
func testHalfMigratedBatch(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	tag := newKey(t)
	from, to := c.NodeFor(tag), otherMaster(t, c, tag)
	var leases []driver.Lease
	var ttls []time.Duration
	var keys []string
	for i := range 6 {
		a := &driver.Acquisition{Key: fmt.Sprintf("%d{%s}", i, tag), ID: newID(), TTL: time.Minute, Tokens: 1}
		l, err := b.Acquire(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		leases, ttls, keys = append(leases, l), append(ttls, 2*time.Minute), append(keys, a.Key)
	}
	c.MigrateSlot(t.Context(), keys[0], to, false)
	k, _ := keysOf(keys[0])
	port := portOf(to)
	command(t, from.Addr(), "MIGRATE", "127.0.0.1", port, "", "0", "1000", "KEYS", k.token)
	k, _ = keysOf(keys[1])
	command(t, from.Addr(), "MIGRATE", "127.0.0.1", port, "", "0", "1000", "KEYS", k.token)

	errs := b.RenewAll(t.Context(), leases, ttls)
	for i, err := range errs {
		if err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	c.MigrateSlot(t.Context(), keys[0], to, true)
	if err := errors.Join(b.RenewAll(t.Context(), leases, ttls)...); err != nil {
		t.Error(err)
	}
	for _, l := range leases {
		if err := l.Release(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
}

// duringMigration calls f for a lock whose slot is moving, once for each set of keys that has already moved.
func duringMigration(t *testing.T, c *testserver.Cluster, f func(t *testing.T, key string, begin, finish func())) {
	k := func(key string) keys { k, _ := keysOf(key); return k }
	for name, moves := range map[string]func(key string) []string{
		"nothing":    func(string) []string { return nil },
		"lock":       func(key string) []string { return []string{key} },
		"token":      func(key string) []string { return []string{k(key).token} },
		"queue":      func(key string) []string { return []string{k(key).queue} },
		"lock+token": func(key string) []string { return []string{key, k(key).token} },
		"all":        func(key string) []string { return []string{key, k(key).token, k(key).queue} },
	} {
		t.Run(name, func(t *testing.T) {
			key := newKey(t)
			from, to := c.NodeFor(key), otherMaster(t, c, key)
			begin := func() {
				c.MigrateSlot(t.Context(), key, to, false) // moves the lock too
				if !slices.Contains(moves(key), key) {
					// While its slot is moving, the old node does not take a key back. When the
					// slot is stable, it does.
					slot := fmt.Sprint(slot(key))
					self := func(n *testserver.Instance) string { return command(t, n.Addr(), "CLUSTER", "MYID").(string) }
					command(t, from.Addr(), "CLUSTER", "SETSLOT", slot, "STABLE")
					command(t, to.Addr(), "MIGRATE", "127.0.0.1", portOf(from), key, "0", "1000")
					command(t, from.Addr(), "CLUSTER", "SETSLOT", slot, "MIGRATING", self(to))
				}
				for _, name := range moves(key) {
					if name != key {
						command(t, from.Addr(), "MIGRATE", "127.0.0.1", portOf(to), name, "0", "1000")
					}
				}
			}
			f(t, key, begin, func() { c.MigrateSlot(t.Context(), key, to, true) })
		})
	}
}

// keysThere returns the keys of key's slot at all masters.
func keysThere(t *testing.T, c *testserver.Cluster, key string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, node := range c.Nodes()[:3] {
		for _, name := range command(t, node.Addr(), "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot(key)), "100").([]any) {
			found[name.(string)] = true
		}
	}
	return found
}

// S40, TRYAGAIN: whichever of a lock's keys have moved, the lock can be renewed and
// released at once.
func testReleasedDuringMigration(t *testing.T, c *testserver.Cluster) {
	a, b := clusterLocker(t, c), clusterLocker(t, c)
	duringMigration(t, c, func(t *testing.T, key string, begin, finish func()) {
		ctx, held := acquire(t, a, ttl(3*time.Second), key)
		first := token(t, ctx)
		waiter := start(t.Context(), b, nil, key)
		queued(t, c.NodeFor(key).Addr(), key, 1)
		begin()
		awaitRenewal(t, held)
		sent := time.Now()
		mustRelease(t, held)
		if took := time.Since(sent); took > 250*time.Millisecond+meter.Since(sent) {
			t.Errorf("released after %v", took)
		}
		// If all keys that the grant needs have moved, the waiter has the lock by now.
		if keysThere(t, c, key)[key] && !strings.HasSuffix(t.Name(), "/all") {
			t.Error("the lock was not released")
		}
		finish()
		next := receive(t, "the waiter", waiter)
		if next.err != nil {
			t.Fatal(next.err)
		}
		if second := token(t, next.ctx); second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		mustEnd(t, next)
	})
}

// What is undone while its slot is moving stays undone: an acquire that arrives
// after the move takes nothing.
func testUndoneDuringMigration(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	duringMigration(t, c, func(t *testing.T, key string, begin, finish func()) {
		a := &driver.Acquisition{Key: key, ID: newID(), TTL: time.Minute, Tokens: 1, Queue: true}
		if _, err := b.Acquire(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		queue := queueOf(key)
		command(t, c.NodeFor(key).Addr(), "ZADD", queue, "1", "4711")
		begin()
		late := *a
		a.MayHaveRun = true
		sent := time.Now()
		if err := b.Undo(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(sent); took > 250*time.Millisecond+meter.Since(sent) {
			t.Errorf("undone after %v", took)
		}
		if keysThere(t, c, key)[key] {
			t.Error("the acquisition was not undone")
		}
		finish()
		addr := c.NodeFor(key).Addr()
		command(t, addr, "ZREM", queue, "4711")
		if _, err := b.Acquire(t.Context(), &late); err == nil {
			t.Error("a late acquire took the lock after the undo")
		}
	})
}
