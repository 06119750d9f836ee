package memlock_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	engine := memlock.New()
	const noNetwork = "a call into this process's memory has no way to be lost on"
	backendtest.Run(t, backendtest.Harness{
		Name:      "memory",
		Open:      func(testing.TB) driver.Backend { return engine },
		TTL:       500 * time.Millisecond,
		Slack:     10 * time.Millisecond,
		MaxKey:    backendtest.Unlimited,
		Remove:    func(t testing.TB, key string) { engine.Remove(key) },
		Leftovers: func(_ testing.TB, prefix string) []string { return engine.Kept(prefix) },
		Cannot: map[backendtest.Ability]string{
			backendtest.NetworkFaults: noNetwork,
			backendtest.Conflict:      "memory holds locks alone",
		},
	})
}

var _ driver.Agreement = (*memlock.Backend)(nil)
