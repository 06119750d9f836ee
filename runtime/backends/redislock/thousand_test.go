package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	lock "github.com/lockgen/lockgen/runtime"
)

// A thousand free locks are taken, and released, in a few commands. One after the other
// they were a thousand each.
func TestAThousandKeys(t *testing.T) {
	t.Parallel()
	const n, bound, trip = 1000, 60, 2 * time.Millisecond
	addr, p := proxied(t)
	l := newLocker(t, p.Addr())
	warm(t, l)
	p.Delay(faultproxy.ToServer, trip)
	tag, reqs := newKey(t), make([]lock.Request, n)
	for i := range reqs {
		reqs[i] = lock.Request{Policy: &lock.Policy{TTL: time.Minute}, Key: fmt.Sprintf("stock:{%s}:%d", tag, i)}
	}
	sent := func(what string, do func()) {
		p.ResetCounts()
		began := time.Now()
		do()
		took, counts := time.Since(began), p.Counts()
		t.Logf("%s %d locks: %v in %v, each on its way for %v", what, n, counts, took.Round(time.Millisecond), trip)
		if all := counts["EVALSHA"] + counts["EVAL"]; all == 0 || all > bound {
			t.Errorf("%s: %d commands, want %d at most", what, all, bound)
		}
	}
	for range 3 {
		var held *lock.Hold
		sent("take", func() {
			var err error
			if _, held, err = l.AcquireAll(t.Context(), reqs...); err != nil {
				t.Fatal(err)
			}
		})
		if !exists(t, addr, reqs[0].Key) || !exists(t, addr, reqs[n-1].Key) {
			t.Error("not all are held")
		}
		sent("free", func() { mustRelease(t, held) })
		if exists(t, addr, reqs[0].Key) || exists(t, addr, reqs[n-1].Key) {
			t.Error("not all are free")
		}
	}
}
