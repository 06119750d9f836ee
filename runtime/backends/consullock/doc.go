// Package consullock is a lock backend on Consul, from version 1.13. It is a
// module of its own, because Consul's client brings a hundred others. Its semaphores do
// not meet api.Semaphore: see below.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	…
//	locker := lock.New(consullock.New(client), nil)
//
// A lock is as api.Lock writes it: the KV pair at the key itself, with flags
// 0x2ddccbc058a50c18, held by a session. So a service on api.Lock and a lockgen
// service exclude each other on one key, and so does `consul lock PREFIX`, on the
// key PREFIX/.lock. The value is the id of the acquisition. A release deletes
// the key if this package made it. A key that was there before is only unlocked, and
// keeps the value of its last holder, because LockIndex may be somebody's sequence.
// Those two can't lock a key that holds %20, as the generator writes a space: they lock by
// /v1/kv, which refuses such a key, and this package by /v1/txn, which takes it.
//
// Leases of about the same length share a session, which lasts a third longer
// than they do and is renewed after a third of the ttl. It has no health checks:
// a holder's lease counts from before its last acknowledged renewal was sent,
// and nothing but the end of that time, or an operator, ends a session earlier.
//
// Processes that wait have an entry each in a queue under lockgen/queue/. A release wakes
// the first of them, by its blocking query, and that process takes the lock. Clients of
// api.Lock have no entries. If they have used a key, a release of this package
// leaves it to them for 4 ms, and all processes try when one of them releases it. A
// client of api.Lock that loses a race against a short hold pauses for five seconds.
//
// # When a holder dies
//
// Consul ends a session between once and twice its TTL after the last renewal,
// and then keeps the key shut for the lock-delay: with ttl=30s and the default
// of 15 s the next holder has it after 99 s at the latest. Locks of this package
// do not need the lock-delay, because a holder's context ends before its session
// can; [Options].LockDelay shortens it. While it lasts an acquire waits as for a
// holder, and tries once a second; the error of a try says why.
//
// A process that hangs while it waits costs the others a second and a half, once, when it
// becomes the first in the queue. One that has died costs nothing after its session has ended.
//
// A holder hears at once that its session has ended. It hears with the next renewal, after a
// third of the ttl, that somebody has deleted its key: a blocking query for each key that is
// held would take a connection each.
//
// If a holder dies whose key existed before, Consul deletes the key, and its LockIndex with it:
// LockIndex then counts from the start.
//
// # What it needs
//
// A ttl from 10 s, or session_ttl_min, to 12 h. Every key that processes wait for
// takes one connection of each of them, for a blocking query; up to 64 at once,
// the rest look once a second. An agent allows 200 connections of one address,
// see limits.http_max_conns_per_client.
//
// TLS, ACL token, datacenter, namespace and partition are those of the client.
// Least rights of a token, for locks under seckill:
//
//	session_prefix ""      { policy = "write" }
//	key_prefix "seckill:"  { policy = "write" }
//	key_prefix "lockgen/"  { policy = "write" }
//
// The session rule may name the node of the agent alone.
//
// # Other kinds
//
// Read-write locks, fair locks, semaphores, conditions and ticks are a record of this
// package at the lock's key, with flags of its own: it does not meet the Semaphore of
// consul/api, and a mutex and a record on one key refuse each other. It is on no session of
// Consul: each process counts the leases in it from when it first read them. So a key whose
// holder has died is free a whole ttl after another process has first read it, and the record
// stays until a process does.
//
// # Notes
//
// What processes tell each other (driver.Noter) is below lockgen/, on sessions for notes alone:
// lockgen/process/<UUID of its owner ids> says who a process is, lockgen/wait/<key> what the
// holder of a lock waits for, and lockgen/order/<outer> > <inner> where locks were nested in
// this order, for a day, the longest that a session lasts. Keys and patterns
// are escaped as in a query, with = for %.
//
// # What an undo leaves
//
// The undo of an acquisition that has an attempt without an answer leaves a tombstone at
// lockgen/undone/<id>: Consul refuses the attempt if it arrives later. All tombstones of one minute share
// a session, which ends one to three minutes later. An attempt that arrives after that is not refused.
//
// # What can go wrong
//
// Fencing tokens are Raft indexes. A datacenter that was lost and is begun anew,
// or `consul agent -dev` restarted, counts from the start: tokens then go back.
// Consul's servers measure a session's time with their monotonic clocks, so
// that no setting of clocks can end a lease early.
package consullock
