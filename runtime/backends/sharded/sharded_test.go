package sharded_test

import (
	"fmt"
	"testing"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A member that is added takes its share of keys, and none moves between the others.
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
		t.Logf("%d members and one: %.2f %% of the keys move", n, 100*share)
		if most := 1/float64(n+1) + 0.05; share > most {
			t.Errorf("of %d members and one, %.3f of the keys move; at most %.3f is right", n, share, most)
		}
	}
}
