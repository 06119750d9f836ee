package backendtest_test

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A backend's test package holds one test like this.
func ExampleRun() {
	TestConformance := func(t *testing.T) {
		engine := memlock.New() // or a server that was started for the test
		backendtest.Run(t, backendtest.Harness{
			Name:   "memory",
			Open:   func(testing.TB) driver.Backend { return engine },
			TTL:    500 * time.Millisecond,
			Slack:  10 * time.Millisecond,
			MaxKey: backendtest.Unlimited,
			Cannot: map[backendtest.Ability]string{
				backendtest.NetworkFaults: "a call into this process's memory has no way to be lost on",
				backendtest.Conflict:      "memory holds locks alone",
				backendtest.Removal:       "no operator reaches into this process",
				backendtest.Inspection:    "nor looks there",
			},
		})
	}
	_ = TestConformance
}

// Over TCP a Network stands between the client and the server.
func ExampleNewNetwork() {
	const server = "10.0.0.7:4000"
	dial := func(addr string) driver.Backend { return memlock.New() } // your backend's

	harness := backendtest.Harness{
		Name: "myengine",
		Open: func(testing.TB) driver.Backend { return dial(server) },
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			network := backendtest.NewNetwork(t)
			return dial(network.Addr(server)), network
		},
	}
	_ = harness
}
