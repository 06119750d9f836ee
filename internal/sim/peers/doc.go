// Package peers plays the simulation of package sim with other lock libraries, and with
// lockgen through the same interface. It is a control: if the simulation found no mistakes
// in other libraries, that it finds none in lockgen would mean nothing.
//
//	GOWORK=off go run -C internal/sim/peers ./cmd -seeds 200
//
// An episode is a plan of [sim.NewPlan]: processes, workers, keys and faults. Workers
// wait with a bound, try, wait without a bound, and are cancelled at any instant. They work
// for shorter and longer than the lease, and their process may be stopped between a check
// and the write that follows it. They check before each write, and stop when they
// learn that the lock is lost. The register that they write to refuses a fencing
// token below one that it has seen. If the library has no tokens, the register accepts every
// write, as a plain database does.
//
// An [Oracle] reports one thing that a lock must not do. Oracles use virtual time, the answers
// of the library, and the key on the server. They do not count failures that no lock can
// prevent: those of calls that asked for a lock before the server lost its data, before its
// clock jumped forward, or before an operator deleted the lock.
//
// Known defects of each library, which the simulation finds:
//
//   - Stale: redsync, redislock and rueidislock have no fencing token. A holder that is
//     stopped between check and write overwrites what a later holder has written.
//   - LeftBehind: redsync and redislock leave a lock behind when the context ends before
//     the reply to SET has arrived. redsync sends its clean-up with the context that has
//     ended; redislock has no clean-up. rueidislock repeats an acquire whose connection
//     broke, finds its own key, and mistakes it for another owner's.
//   - Late: all three wait for replies after their context has ended. go-redis obeys
//     deadlines on the network only with ContextTimeoutEnabled, which redsync and redislock
//     do not set, and does not obey a cancellation even then. rueidislock waits until the
//     deletion of its key is answered.
//   - ToldLate, Exclusion: rueidislock's context lives until a renewal that began within
//     the lease has failed, which takes up to half a lease longer than the key lives.
//     redislock answers with the TTL at the moment at which the server read it.
//   - Polling: redsync asks after 50 to 250 ms, redislock after 100 ms.
//
// [Naive] is a lock that breaks every oracle.
package peers
