// Package model has models of engines whose locks live on something else than a key
// with an expiry, as the backend of a [lock.Locker] sees them: etcd, ZooKeeper, Consul,
// and a SQL row with its database's clock. They are for a simulation inside one bubble
// of testing/synctest, which judges the Locker on semantics that are not Redis's.
//
// A [Server] is the engine's whole state in memory. A [Client] is what one process has
// of it: it reaches the server only by messages over a [vnet.Path], and does what a good
// client of that engine does when they are late or lost.
//
//	           a lock is                     its holder lives on     which ends by itself
//	Etcd       the key with the least        a lease, kept alive     when its ttl is over
//	           create revision
//	ZooKeeper  the ephemeral node with the   a session, kept alive   at the next tick after
//	           least number                                          its timeout
//	Consul     the KV pair                   a session, kept alive   between ttl and 2 x ttl,
//	                                                                 1 s late at most
//	Row        the row's owner               its own expiry          then, by the database's
//	                                                                 clock
//
// In the first two a process that waits has a place in line, and hears when what stands
// directly before it goes; in Consul it hears when the key is free, and in Row of most
// releases. The token is the create revision, czxid or ModifyIndex, shifted left by 16
// bits; in Row it is the larger of the last one + 1 and 4 times the database's µs.
//
// A lease ends for its process at what is earlier: its own ttl, after which the client
// itself frees the lock, or the session's end. Both count from before the request was
// sent that the server acknowledged. What an attempt without an answer may yet do is
// undone: by a tombstone on the session (Etcd, Consul) or in the table (Row); in
// ZooKeeper by the order of a session's requests, since a new connection of it shuts the
// old one out.
//
// Lengths are those of a simulation: a session lasts a multiple of 100 ms, and a tick
// takes 50 ms.
//
// Not modelled: what several servers do among themselves, rights, clients of others,
// what is at a key and no lock, watches that a compaction ends, the lock-delay of Consul,
// bounds of a session's length, and sessions that are given back when nobody uses them. A
// place in line belongs to one acquisition: the next of its process begins behind. No
// release grants the lock to the next in line. A server that starts empty goes on with
// its revisions, as a restored etcd does by --bump-revision.
package model
