// Package soak uses redislock and the Locker at random under faults, on a real Redis, and
// checks the results.
//
// A run is a series of episodes of about four seconds, two at a time. In each episode
// two or three client processes (package client) lock three keys on one private
// Redis. Every process is behind a fault proxy of its own. Faults that are drawn from the
// seed strike clients, connections and server. Then all faults are healed, and
// the clients finish and leave. Soak checks the histories that they wrote (package
// history), samples of the server's keys, and the writes to a fenced register (package
// register). In half of the episodes the clients also take read-write locks, fair locks,
// permits and ticks. In a quarter of the episodes they bound the queue, in a quarter they ask
// for a delay, and in a quarter they wait for conditions.
//
// Another test starts processes whose clocks differ by two minutes. They run a job once for
// each tick, and are killed while they run it (package ticks):
//
//	go test -run TestEachTickIsCompletedOnce . -args -ticks 1000 -ticksseed 7
//
// The same seed makes the same plan, but not the same interleaving. Repeat an episode
// many times (-episodes) to see a rare one.
package soak
