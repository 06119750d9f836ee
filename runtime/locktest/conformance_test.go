package locktest_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// The engine for users' tests behaves like the engines that services run on.
func TestConformance(t *testing.T) {
	engine := locktest.New(t)
	backendtest.Run(t, backendtest.Harness{
		Name:   "locktest",
		Open:   func(testing.TB) driver.Backend { return engine },
		TTL:    500 * time.Millisecond,
		Slack:  10 * time.Millisecond,
		MaxKey: backendtest.Unlimited,
		Remove: func(_ testing.TB, key string) { engine.Lose(key) },
		Cannot: map[backendtest.Ability]string{
			backendtest.NetworkFaults: "its switches strike all clients of the engine at once; switches_test.go tests them",
			backendtest.Conflict:      "memory holds locks alone",
			backendtest.Inspection:    "it keeps what memlock keeps, which is looked at there",
		},
	})
}
