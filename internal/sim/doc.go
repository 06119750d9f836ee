// Package sim plays episodes in which processes lock the same keys under faults, in
// virtual time, and checks what came of it. All of an episode follows from its seed:
// the same seed makes the same history, to the byte.
//
// An episode is one bubble of testing/synctest. In it are some processes, each with a
// Locker, a redislock and a go-redis client of its own, and the workers of the soak
// (package client); a network (package vnet); a server, which is a miniredis with the
// faults of a real one ([Redis]); or another engine. Faults are drawn from the seed
// ([NewPlan]). In the end all is healed and the processes leave. The history is checked
// by the oracles of the soak (package history), and by [Result.live].
//
// What makes runs repeatable is in package goruntime. What miniredis can't do, and how
// it is kept honest, is in package differential. README.md tells how to write a
// scenario.
//
// What is not simulated: the instant at which a goroutine is preempted (goroutines change
// where they block, in an order drawn from the seed); a process that is paused alone has
// its timers fire in time, and only its callers and its network stop ("pause-client"),
// while all processes together also have late timers ("stall-clients"); a Cluster,
// Sentinel, replicas and TLS.
package sim
