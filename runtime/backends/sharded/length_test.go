package sharded_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A key that moves waits for LongestTTL, however long that is.
func TestLongestLeases(t *testing.T) {
	for _, longest := range []time.Duration{9 * 365 * 24 * time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			first, added := memlock.New(), memlock.New()
			old := sharded.New(map[string]driver.Backend{"a": first}, sharded.Options{LongestTTL: longest})
			next := sharded.New(map[string]driver.Backend{"a": first, "b": added}, sharded.Options{LongestTTL: longest, Version: 2})
			for _, b := range []*sharded.Backend{old, next} {
				b.Attach()
				defer b.Close()
			}
			if err := old.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			key := "key"
			for i := 0; next.Owner(key) != "b"; i++ {
				key = fmt.Sprint("key ", i)
			}
			acquisition := func(process int) *driver.Acquisition {
				return &driver.Acquisition{Key: key, ID: fmt.Sprintf("00000000-0000-8000-8000-00000000000%d:1", process), TTL: time.Hour, Tokens: 1}
			}
			l, err := old.Acquire(t.Context(), acquisition(1))
			if err != nil {
				t.Fatal(err)
			}
			if left := l.Deadline().Left(); left != time.Hour {
				t.Errorf("a lease of an hour lasts %v", left)
			}
			_ = next.Ping(t.Context())
			time.Sleep(10 * time.Minute)
			if _, err := next.Acquire(t.Context(), acquisition(2)); err == nil {
				t.Error("the new member granted a key that is held at the old one")
			}
		})
	}
}
