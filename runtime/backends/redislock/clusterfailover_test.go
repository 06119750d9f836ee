package redislock

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// S40, CLUSTERDOWN and failover: a holder keeps its lock or learns of the loss
// in time. Others get locks as soon as the new master serves. Tokens rise.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Asked", "Killed", "Stopped"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := stableCluster(t)
			waiting := clusterBackend(t, c)
			a, b := clusterLocker(t, c), lockerOn(t, waiting)
			key, free := newKey(t), newKey(t)
			warm(t, b)
			const lease = 9 * time.Second // several times what the other nodes take to replace a master
			ctx, held := acquire(t, a, ttl(lease), key)
			first := token(t, ctx)
			old := c.NodeFor(key)
			for c.NodeFor(free) != old {
				free = newKey(t)
			}
			setDownAfter := func(ms string) { // sets how long the master may be silent before it is replaced
				for _, node := range c.Nodes() {
					if node != old {
						command(t, node.Addr(), "CONFIG", "SET", "cluster-node-timeout", ms)
					}
				}
			}
			_, wakes := acquire(t, a, nil, free) // so that b's first subscription is at the master of its key
			waiter := start(t.Context(), b, nil, free)
			awaitListening(t, waiting, free)
			mustRelease(t, wakes)
			mustEnd(t, receive(t, "the waiter", waiter))
			_, other := acquire(t, b, nil, free)
			mustRelease(t, other)
			outlasting := start(t.Context(), b, nil, key)
			queued(t, old.Addr(), key, 1)
			copied(t, c, old, key)
			gap := probe(t, b, free)
			setDownAfter("1000")
			switch how {
			case "Asked":
				c.Failover(t.Context(), old)
			case "Killed":
				old.Kill()
			case "Stopped":
				old.Stop()
				t.Cleanup(old.Cont)
			}
			c.AwaitMaster(t.Context(), key, old)
			setDownAfter(longSilence)
			begin := time.Now()
			_, other = acquireSoon(t, b, nil, free)
			mustRelease(t, other)
			took := time.Since(begin)
			if took > 2*time.Second+meter.Since(begin) {
				t.Errorf("the new master was found %v after it began to serve", took)
			}
			t.Logf("found after %v", took)
			t.Logf("no new lock for %v", gap())

			awaitRenewal(t, held) // the new master has it
			awaitRenewal(t, held)
			wantIs(t, refused(t, b, try(), key), lock.ErrNotAcquired)
			select {
			case next := <-outlasting:
				t.Fatalf("the waiter did not wait for the release: %v", next.err)
			default:
			}
			_ = finish(held)
			next := receive(t, "the waiter", outlasting)
			if next.err != nil {
				t.Fatalf("the waiter: %v", next.err)
			}
			if second := token(t, next.ctx); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			mustEnd(t, next)
			testClusterListenerReturns(t, c, a, b)
			for range 3 {
				woken(t, waiting, b, &clusterRedisson{t, c, key}, "SPUBLISH", func() {})
			}
		})
	}
}

// When all servers are gone, the first call that waits fails after a while. The calls that are queued
// behind it fail soon after.
func TestClusterGone(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t)
	l := clusterLocker(t, c)
	warm(t, l)
	for _, node := range c.Nodes() {
		node.Kill()
	}
	time.Sleep(20 * time.Millisecond) // otherwise the call may be sent, and have no answer
	begin := time.Now()
	_, _, err := l.Acquire(t.Context(), try(), newKey(t))
	wantIs(t, err, lock.ErrUnavailable)
	if took := time.Since(begin); took > time.Second+meter.Since(begin) {
		t.Errorf("a call that does not wait failed after %v", took)
	}
	begin = time.Now()
	key := newKey(t)
	var all []<-chan outcome
	for range 8 { // queued one behind the other
		all = append(all, start(t.Context(), l, nil, key))
	}
	var first time.Duration
	for _, one := range all {
		select {
		case o := <-one:
			wantIs(t, o.err, lock.ErrUnavailable)
			wantIsNot(t, o.err, lock.ErrIndeterminate)
			if took := time.Since(begin); first == 0 || took < first {
				first = took
			}
		case <-time.After(2 * outageLimit):
			t.Fatal("a waiting call did not fail")
		}
	}
	if first < outageLimit/2 {
		t.Errorf("the first waiting call failed after only %v", first)
	}
	if took := time.Since(begin); took > outageLimit+8*time.Second+meter.Since(begin) {
		t.Errorf("the last waiting call failed after %v", took)
	}
}
