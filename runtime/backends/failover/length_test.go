package failover_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A switch waits for LongestTTL, however long that is.
func TestLongestLeases(t *testing.T) {
	for _, longest := range []time.Duration{9 * 365 * 24 * time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			b := failover.New(memlock.New(), []driver.Backend{memlock.New()}, failover.Options{LongestTTL: longest})
			b.Attach()
			defer b.Close()
			if err := b.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := &driver.Acquisition{Key: "key", ID: "00000000-0000-8000-8000-000000000001:1", TTL: time.Hour, Tokens: 1}
			l, err := b.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			if left := l.Deadline().Left(); left != time.Hour {
				t.Errorf("a lease of an hour lasts %v", left)
			}
			if err := b.Switch(t.Context(), "standby"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			if s, err := b.Status(t.Context()); err != nil || s.Engine != "standby" || s.Open {
				t.Errorf("while a lease lasts, the record is %+v, %v", s, err)
			}
		})
	}
}
