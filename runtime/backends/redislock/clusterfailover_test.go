package redislock

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S40, CLUSTERDOWN and failover: a holder keeps its lock or hears of the loss
// in time; others get locks as soon as the new master serves; tokens rise.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Asked", "Killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := testserver.StartCluster(t)
			waiting := clusterBackend(t, c)
			a, b := clusterLocker(t, c), lockerOn(t, waiting)
			key, free := newKey(t), newKey(t)
			warm(t, b)
			const lease = 6 * time.Second
			ctx, held := acquire(t, a, ttl(lease), key)
			first := token(t, ctx)
			old := c.NodeFor(key)
			for c.NodeFor(free) != old {
				free = newKey(t)
			}
			_, wakes := acquire(t, a, nil, free) // b's first subscription goes to the master of its key
			waiter := start(t.Context(), b, nil, free)
			awaitListening(t, waiting, free)
			mustRelease(t, wakes)
			mustRelease(t, receive(t, "the waiter", waiter).held)
			_, other := acquire(t, b, nil, free)
			mustRelease(t, other)
			copied(t, c, old, key)
			gap := probe(t, b, free)
			switch how {
			case "Asked":
				c.Failover(t.Context(), old)
			case "Killed":
				old.Kill()
			}
			c.AwaitMaster(t.Context(), key, old)
			begin := time.Now()
			_, other = acquireSoon(t, b, nil, free)
			mustRelease(t, other)
			if took := time.Since(begin); took > 2*time.Second+lag(begin) {
				t.Errorf("the new master serves, and is found after %v", took)
			}
			t.Logf("no new lock for %v", gap())

			time.Sleep(lease + lease/2) // kept by renewals at the new master
			if err := lock.Check(ctx); err != nil {
				t.Errorf("lost, though the new master had it: %v", err)
			}
			wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
			_ = finish(held)
			ctx, held = acquireSoon(t, b, nil, key)
			if second := token(t, ctx); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			mustRelease(t, held)
			testClusterListenerReturns(t, c, a, b)
		})
	}
}
