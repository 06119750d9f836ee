package quorum_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}
	cannot := backendtest.MutexesOnly("a majority decides about mutexes only")
	cannot[backendtest.NetworkFaults] = "calls into this process's memory have no way to be lost on"
	cannot[backendtest.Removal] = "the members' own rows check it"
	cannot[backendtest.Conflict] = "memory holds locks alone"
	cannot[backendtest.Inspection] = "the members' own rows check it"
	backendtest.Run(t, backendtest.Harness{
		Name:   "quorum of memory",
		Open:   func(testing.TB) driver.Backend { return quorum.New(members, quorum.Options{LongestTTL: time.Hour}) },
		TTL:    500 * time.Millisecond,
		Slack:  20 * time.Millisecond,
		MaxTTL: time.Hour,
		MaxKey: backendtest.Unlimited,
		Holds:  300,
		Cannot: cannot,
	})
}
