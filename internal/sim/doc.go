// Package sim plays episodes in which processes lock the same keys under faults, in
// virtual time, and checks the results. The seed decides everything in an episode:
// the same seed makes the same history, to the byte.
//
// An episode is one bubble of testing/synctest. It has several processes, each with a
// Locker, a redislock, a go-redis client and the workers of the soak (package client); a
// network (package vnet); and a server, which is a miniredis with the faults of a real one
// ([Redis]) or another engine. Faults are drawn from the seed ([NewPlan]). At the end all
// faults are healed, and the processes leave. The oracles of the soak (package history) and
// [Result.live] check the history.
//
// Package goruntime makes runs repeatable. Package differential says what miniredis can't
// do, and compares it with a real Redis. README.md tells how to write a scenario.
//
// Not simulated are preemption at any instant (goroutines switch only where they block, in
// an order drawn from the seed), a Cluster, Sentinel, replicas and TLS. A pause of one
// process ("pause-client") stops only its callers and its network; its timers still fire in
// time. A pause of all processes ("stall-clients") also delays timers.
package sim
