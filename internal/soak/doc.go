// Package soak torments redislock and the Locker at random, and checks what
// came of it.
//
// A run is a series of episodes of about four seconds, two at a time. In each,
// two or three client processes (package client) lock three keys on one private
// Redis, every process behind a fault proxy of its own, while faults that are
// drawn from the seed strike clients, connections and server. Then all is healed,
// the clients drain and leave, and the histories that they wrote (package
// history) are checked, together with samples of the server's keys and what a
// fenced register (package register) was asked to accept. In half of the episodes the
// clients take read-write locks, fair locks, permits and ticks as well, and in a quarter each they
// bound the queue, ask for a delay, and wait for conditions.
//
// A test beside it has processes whose clocks are two minutes apart run a job once for
// each tick, and kills them in it (package ticks):
//
//	go test -run TestEachTickIsCompletedOnce . -args -ticks 1000 -ticksseed 7
//
// The same seed makes the same plan. It does not make the same interleaving: run
// an episode again and again (-episodes) to see a rare one.
package soak
