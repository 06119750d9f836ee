// Package backendtest is the conformance suite of lock backends: whoever
// passes it can stand behind a [lock.Locker], with every guarantee that the
// Locker gives. All backends of this project run it against their real
// engines, and so can one that lives elsewhere:
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
// Each behaviour has a file of its name; suite.go lists them. Checks of
// the bare Backend hold it to the contract that its interface states; checks
// through a Locker hold both to what a user sees.
//
// # What an engine can't do
//
// What an engine, or its harness, can't do is declared in [Harness].Cannot with
// its reason. Nothing is skipped in silence: where the declaration is about the
// backend the suite checks that the backend refuses it, by an error that says
// so, or does without it as well as the contract asks; and each declaration is
// printed with its reason, below the line of the results. A declaration that is
// needless, because the harness has what it says is missing, is an error.
//
// # Time
//
// Every time in the suite derives from the harness: TTL is the lease of the
// checks that wait for its end, Slack how much later than that the engine may
// end it. Where the end is not the point, leases are long (a minute, or MaxTTL),
// so that a busy machine does not see them end, and what is left behind shows.
// What a check measures may be too long by how late this process was and, where
// the Backend is a driver.Pinger, by how much longer than usual its Ping takes
// meanwhile. The checks of one harness run side by side, 16 at once and each
// under keys of its own: an engine that counts in seconds takes little longer
// than one that does not. A few, which count goroutines, run alone at the end:
// call Run from a test that is not parallel.
//
// # Storm
//
// What the checks do not think of, [Storm] may find: Lockers that use few keys at
// random while faults strike them. [Run] runs that instead where the environment
// asks for it: LOCKGEN_STORM=1m go test -run Conformance.
//
// Run with the race detector: critical sections are guarded by nothing but the
// lock under test.
package backendtest
