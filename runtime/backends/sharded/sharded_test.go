package sharded_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A member that is added takes its share of the keys, and no key moves between the other members.
func TestShareThatMoves(t *testing.T) {
	const keys = 20_000
	for n := 1; n <= 9; n++ {
		members := map[string]driver.Backend{}
		for i := range n {
			members[fmt.Sprintf("redis-%d", i)] = memlock.New()
		}
		before := sharded.New(members)
		members["added"] = memlock.New()
		after, moved := sharded.New(members), 0
		for i := range keys {
			key := fmt.Sprintf("order:%d", i)
			if old, now := before.Owner(key), after.Owner(key); now == "added" {
				moved++
			} else if old != now {
				t.Fatalf("%s moved from %s to %s", key, old, now)
			}
		}
		share := float64(moved) / keys
		t.Logf("one member added to %d: %.2f %% of the keys move", n, 100*share)
		if most := 1/float64(n+1) + 0.05; share > most {
			t.Errorf("one member added to %d: a share of %.3f of the keys moves; at most %.3f is right", n, share, most)
		}
	}
}

// hung is a link to a member. Requests for its record get no answer while silent is set.
type hung struct {
	link
	silent *atomic.Bool
}

func (h hung) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if h.silent.Load() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return h.link.CompareAndSwap(ctx, key, old, next)
}

// Many calls need to read a record that does not answer. No call waits for the reads of all others.
func TestManyCallsLookAtARecordThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, silent := newWorld(t, "a"), &atomic.Bool{}
		b := sharded.New(map[string]driver.Backend{"a": hung{link{w.servers["a"], 1}, silent}}, quick)
		defer b.Close()
		if err := b.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent.Store(true)
		time.Sleep(2 * quick.Silence)
		begun, errs := time.Now(), make(chan error)
		const calls = 50
		for i := range calls {
			go func() {
				a := &driver.Acquisition{Key: fmt.Sprint("key ", i), ID: fmt.Sprint("00000000-0000-8000-8000-000000000001:", i), TTL: time.Second, Tokens: 1}
				_, err := b.Acquire(t.Context(), a)
				errs <- err
			}()
		}
		for range calls {
			if err := <-errs; err == nil {
				t.Error("a member whose record can't be read has granted a lock")
			}
		}
		if took := time.Since(begun); took > 2*quick.Timeout {
			t.Errorf("the last of %d calls failed after %v; want at most %v, for the read under way and their own", calls, took, 2*quick.Timeout)
		}
		silent.Store(false)
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
