package failover_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	primary, standby := memlock.New(), memlock.New()
	open := func(testing.TB) driver.Backend {
		return failover.New(primary, []driver.Backend{standby}, failover.Options{LongestTTL: time.Hour})
	}
	begin(t, open(t))
	cannot := backendtest.MutexesOnly("the record is about mutexes only")
	cannot[backendtest.NetworkFaults] = "calls into this process's memory have no way to be lost on"
	cannot[backendtest.Removal] = "the engines' own rows check it"
	cannot[backendtest.Conflict] = "memory holds locks alone"
	cannot[backendtest.Inspection] = "the engines' own rows check it"
	backendtest.Run(t, backendtest.Harness{
		Name:   "failover of memory",
		Open:   open,
		TTL:    500 * time.Millisecond,
		Slack:  20 * time.Millisecond,
		MaxTTL: time.Hour,
		MaxKey: backendtest.Unlimited,
		Holds:  300,
		Cannot: cannot,
	})
}

func begin(t *testing.T, b driver.Backend) {
	t.Helper()
	if err := b.(*failover.Backend).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
