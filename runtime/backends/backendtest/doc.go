// Package backendtest is the conformance suite of lock backends. A backend that
// passes it can be used by a [lock.Locker], which then gives all its guarantees. All
// backends of this project run the suite against their real engines. A backend
// outside of this project can do the same:
//
//	func TestConformance(t *testing.T) {
//		addr := startMyEngine(t)
//		backendtest.Run(t, backendtest.Harness{
//			Name: "myengine",
//			Open: func(t testing.TB) driver.Backend { return mylock.New(addr) },
//			OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
//				network := backendtest.NewNetwork(t)
//				return mylock.New(network.Addr(addr)), network
//			},
//			TTL:    400 * time.Millisecond,
//			Slack:  100 * time.Millisecond,
//			MaxKey: 1024,
//			Remove: func(t testing.TB, key string) { … },
//			Occupy: func(t testing.TB, key string) { … },
//			Leftovers: func(t testing.TB, prefix string) []string { … },
//		})
//	}
//
// memlock/conformance_test.go is the shortest test of this form, and etcdlock has one
// with a Network between client and server.
//
// Each behaviour has a file of its name; suite.go lists them. Some checks call the
// Backend directly, and compare it with the contract of its interface. Others use it
// through a Locker, and check what a user sees.
//
// # What an engine can't do
//
// [Harness].Cannot declares what an engine or its harness can't do, with the reason.
// Nothing is skipped in silence. If a declaration is about the backend, the suite
// checks that the backend refuses the request with an error that says so, or does
// without the ability as well as the contract demands. Each declaration is printed with
// its reason, below the line of the results. A declaration is an error if the harness
// has the ability after all.
//
// # Time
//
// All times in the suite follow from the harness. TTL is the lease of checks that
// wait for its end; Slack is how much later than that the engine may end it. Other
// checks take long leases (a minute, or MaxTTL): they do not end on a busy machine, and
// a lock that is left behind is noticed. A measured time may be too long by as much as
// this process was late and, if the Backend is a driver.Pinger, by as much as its Ping
// took longer than usual. The checks of one harness run at the same time, up to 16, each
// with keys of its own. So an engine that counts in seconds takes little longer than
// others. A few checks count goroutines and run alone at the end: call Run from a test
// that is not parallel.
//
// # Storm
//
// [Storm] may find mistakes that no check looks for: its Lockers use a few keys at
// random under faults. [Run] runs it instead of the checks if the environment
// asks for it: LOCKGEN_STORM=1m go test -run Conformance.
//
// Run the suite with the race detector, because only the lock under test guards the
// critical sections.
package backendtest
