// Package model has models of engines whose locks are not keys with an expiry: etcd,
// ZooKeeper, Consul, and a SQL row with the clock of its database. A model shows what the
// backend of a [lock.Locker] sees. The simulation uses the models to check the Locker on
// engines other than Redis, inside one bubble of testing/synctest.
//
// A [Server] has the whole state of the engine in memory. A [Client] belongs to one process.
// It reaches the server only by messages over a [vnet.Path]. If messages are late or lost,
// it does what a good client of that engine does.
//
//	           a lock is                     its holder depends on   which ends by itself
//	Etcd       the key with the least        a lease, kept alive     when its ttl is over
//	           create revision
//	ZooKeeper  the ephemeral node with the   a session, kept alive   at the next tick after
//	           least number                                          its timeout
//	Consul     the KV pair                   a session, kept alive   between ttl and 2 x ttl,
//	                                                                 1 s late at most
//	Row        the row's owner               its own expiry          then, by the database's
//	                                                                 clock
//
// In Etcd and ZooKeeper a process that waits has a place in the queue, and is notified when
// the entry directly before its own ends. In Consul it is notified when the key is free, and
// in Row of most releases. The token is the create revision, czxid or ModifyIndex, shifted
// left by 16 bits. In Row it is the last token plus 1, or 4 times the database's time in µs
// if that is larger.
//
// For its process a lease ends when its ttl is over, or when the session ends if that is
// earlier. When the ttl is over, the client itself frees the lock. Both times count from
// before the acknowledged request was sent. An attempt without an answer may still run later.
// It is undone by a tombstone on the session (Etcd, Consul) or in the table (Row). ZooKeeper
// needs none, because the requests of a session are in order, and a new connection of the
// session shuts the old one out.
//
// Lengths are made for a simulation: a session lasts a multiple of 100 ms, and a tick
// takes 50 ms.
//
// Not modelled are replication between servers, rights, other clients, keys that hold
// something other than a lock, watches that a compaction ends, the lock-delay of Consul,
// bounds of a session's length, and sessions that are closed when nobody uses them. A place
// in the queue belongs to one acquisition: the next acquisition of the process begins at the
// end. A release does not grant the lock to the next in the queue. A server that starts empty
// continues its revisions, as an etcd does that was restored with --bump-revision.
package model
