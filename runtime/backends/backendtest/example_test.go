package backendtest_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// In a test file, write this function as func TestConformance(t *testing.T).
func ExampleRun() {
	_ = func(t *testing.T) {
		engine := memlock.New()
		backendtest.Run(t, backendtest.Harness{
			Name:  "myengine",
			Open:  func(testing.TB) driver.Backend { return engine },
			TTL:   400 * time.Millisecond,
			Slack: 100 * time.Millisecond,

			MaxKey: backendtest.Unlimited,
			Remove: func(_ testing.TB, key string) { /* deletes the lock, as an operator would */ },
			Cannot: map[backendtest.Ability]string{
				backendtest.NetworkFaults: "a call to memory of this process can't be lost",
				backendtest.Conflict:      "the memory holds nothing but locks",
			},
		})
	}
	// Output:
}
