// Package peers plays the simulation of package sim with other lock libraries, and with
// ours through the same interface. It is a control: a simulation that finds nothing
// wrong in other libraries can't be trusted when it finds nothing in ours.
//
//	GOWORK=off go run -C internal/sim/peers ./cmd -seeds 200
//
// An episode is a plan of [sim.NewPlan]: processes, workers, keys and faults. Workers
// wait with a bound, try, wait for as long as it takes, are cancelled at any instant,
// work for shorter and longer than the lease, and have their process stopped between a
// check and the write that follows it. They check before each write, and stop when they
// are told that the lock is lost. The register that they write to refuses a fencing
// token below one that it has seen; of a library without tokens it takes every write, as
// a plain database does.
//
// An [Oracle] is one thing that a lock must not do. Oracles look at virtual time, at
// what libraries answer, and at the key that the server has. What no lock can prevent
// is not counted: what happens to those who asked for a lock before the server lost its
// data or its clock jumped forward, or before an operator deleted that lock.
//
// What is known of each library, and is found:
//
//   - Stale: redsync, redislock and rueidislock have no fencing token. A holder that is
//     stopped between check and write overwrites what a later holder has written.
//   - LeftBehind: redsync and redislock leave a lock behind when the context ends before
//     the reply to SET is there. redsync sends its clean-up with the context that has
//     ended; redislock has none. rueidislock sends an acquire again whose connection
//     broke, meets its own key, and takes it for another owner's.
//   - Late: all three wait for replies longer than their context lives. go-redis obeys
//     deadlines on the network only with ContextTimeoutEnabled, which neither library
//     asks for, and a cancellation not even then; rueidislock waits until the deletion of
//     its key is answered.
//   - ToldLate, Exclusion: rueidislock's context lives until a renewal that began within
//     the lease has failed, which takes up to half a lease longer than the key lives.
//     redislock answers with the TTL as it was when the server looked.
//   - Polling: redsync asks after 50 to 250 ms, redislock after 100 ms.
//
// [Naive] is a lock that breaks every oracle.
package peers
