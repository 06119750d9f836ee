package redislock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S40, MOVED: what a lock goes through does not see that its slot moves.
func testSlotMigrated(t *testing.T, c *testserver.Cluster) {
	a, b := clusterLocker(t, c), clusterLocker(t, c)
	key := newKey(t)
	const lease = 900 * time.Millisecond
	ctx, held := acquire(t, a, ttl(lease), key)
	first := token(t, ctx)
	waiter := start(t.Context(), b, nil, key)
	queued(t, c.NodeFor(key).Addr(), key, 1)

	to := otherMaster(t, c, key)
	c.MigrateSlot(t.Context(), key, to, true)
	if !exists(t, to.Addr(), key) {
		t.Fatal("the lock did not move")
	}
	time.Sleep(2 * lease) // renewed where it is now
	if err := lock.Check(ctx); err != nil {
		t.Fatalf("lost: %v", err)
	}
	wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
	mustRelease(t, held)
	next := receive(t, "the waiter", waiter)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if second := token(t, next.ctx); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	mustRelease(t, next.held)
}

// S40, ASK and TRYAGAIN: the lock has moved and its token key has not.
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

	// What is tried as the move ends, succeeds.
	outcomes := start(t.Context(), b, nil, key+"{"+key+"}")
	c.MigrateSlot(t.Context(), key, to, true)
	if other := receive(t, "the other lock of the slot", outcomes); other.err == nil {
		mustRelease(t, other.held)
	} else {
		wantIs(t, other.err, lock.ErrUnavailable) // the move outlasted the attempts
	}
	wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
	mustRelease(t, held)
	ctx, held = acquire(t, b, try(), key)
	if second := token(t, ctx); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	mustRelease(t, held)
}

// S40: leases of a slot that is on its way are renewed here or there, each
// where it is.
func testHalfMigratedBatch(t *testing.T, c *testserver.Cluster) {
	b := clusterBackend(t, c)
	b.Attach()
	t.Cleanup(func() { _ = b.Close() })
	tag := newKey(t)
	from, to := c.NodeFor(tag), otherMaster(t, c, tag)
	var leases []lock.Lease
	var ttls []time.Duration
	var keys []string
	for i := range 6 {
		a := &lock.Acquisition{Key: fmt.Sprintf("%d{%s}", i, tag), ID: newID(), TTL: time.Minute, Tokens: 1}
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
		switch {
		case i == 1 && (err == nil || errors.Is(err, lock.ErrLost)):
			t.Errorf("lease 1, which is in two parts: %v", err)
		case i != 1 && err != nil:
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
