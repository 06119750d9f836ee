// Package etcdlock is a lock backend on etcd, from version 3.4. A lock is the
// key that concurrency.Mutex and "etcdctl lock" write, <key>/<lease id in hex>,
// so that these and lockgen services exclude and wake each other on one key;
// its value is ours: the ID of the acquisition. The smallest create revision
// below <key>/ owns the lock, whoever wrote it, and the others queue behind it,
// one entry for each process. Read-write locks and fair locks do not meet
// recipes.RWMutex and concurrency.Election: see below.
//
// # Leases
//
// All locks of a Locker with about the same ttl share one lease of etcd (a
// session), granted at the first acquire and kept alive by a stream of its own
// at a third of its length. Its ttl is the next whole second above the
// policy's, or more where the server's least is higher (one and a half of its
// election timeouts, which is 2 s by default): a crash keeps the lock for so long. A
// process that dies while it waits stays in the queue for so long, as one of
// concurrency.Mutex does: when its turn comes, the lock is free and nobody gets it. Fair
// locks, which are records, pass over it after half a second. The holder's own deadline
// is the policy's ttl or the session's, whichever is earlier, and counts from
// before the request was sent that the server acknowledged; so a ttl may be shorter
// than any session. A lock that is no
// longer renewed (renew=off, max) is freed by this process at the end of its
// ttl. When a session ends, all its locks end with it, at once. It is never
// used again: the next acquire makes a new one. A session that nobody has
// used for three of its lengths is given back. If an undo failed because etcd was out of
// reach, the session tries it again.
//
// After an election and after a restart of its servers etcd lets every lease
// begin anew: what a crashed process held is free a ttl after that.
//
// # Several keys
//
// An AcquireAll sends its mutexes a hundred to a transaction, and so does its release: 10
// transactions for 1,000 keys. Each key has its own, nested in that, so it is refused, held
// and undone by itself; where a server refuses the whole (a right to one key, a request too
// large), each is sent alone. etcd's --max-txn-ops must be 103 at least for that, and is
// 128 by default.
//
// # How soon a loss is known
//
// Keys that are held are not watched: etcd has no watch for the keys of one lease, and
// one watch for each hold would cost a goroutine and two messages more. So a
// holder hears within a third of the ttl, 10 of 30 seconds, that someone has revoked its
// lease (by the next keep-alive) or deleted its key (by the next renewal). Until then
// another may have the lock as well. If keep-alives have no answer, the holder's own clock
// ends its lease before the server can.
//
// # What can break it
//
// A cluster that is restored from a backup forgets what came after, locks and
// revisions: restore with etcdutl's --bump-revision, so that fencing tokens
// rise, and not while locks are held.
//
// Before 3.4.31 and 3.5.13 a leader that was frozen for longer than a session, and
// resumes, may have leases revoked that its successor has kept alive. So may an operator,
// who may delete keys as well. The holder hears of it late, as said above.
//
// Otherwise exclusion rests on the clocks of this process and of etcd's leader running
// equally fast within a hundredth.
//
// # Other keys
//
// A key below <key>/ that has a lease is a contender, as it is for
// concurrency.Mutex, whoever wrote it. One without a lease is no lock, and would block
// the lock for ever: where it does, an acquire is driver.ErrConflict. A key whose
// rest after <key>/ holds another slash belongs to another lock: a and a/b
// are independent here. They are not for concurrency.Mutex and etcdctl: their
// lock on a waits for ours, and theirs, on a/b. A value at <key> itself is ignored.
//
// Keys may have up to 1,024 bytes, of any value. An acquisition of which an attempt had no
// answer leaves a tombstone at <key>.lockgen/undone/<id>/, for a minute, so that the attempt
// can't come true later. An etcd that is out of space refuses tombstones and locks: compact
// and defragment it, and disarm its alarm. A lock that the attempt may have taken is freed when
// there is space again, or its session ends.
//
// # Other kinds
//
// Read-write locks, fair locks, semaphores, conditions and ticks are a record of this
// package, <key>/lockgen.record, which other clients do not know; it is in the way of their
// mutexes, and theirs of it. It is on no lease of etcd: each process counts the leases in it
// from when it first read them. So a key whose holder has died is free a whole ttl after another
// process has first read it, and the record stays until a process does.
//
// # Rights
//
// Least rights of a user, for locks under seckill: (a role with one permission):
//
//	etcdctl role add locks
//	etcdctl role grant-permission locks --prefix=true readwrite seckill:
//
// Leases need no right of their own. But recent servers (from about 3.4.42 and 3.5.28) let
// only a user who may write all keys on a lease keep it alive, and these are the keys of the
// locks: if a right ends while its lock is held, all locks of the session are lost. Older
// servers keep the lease alive: only that lock is lost, at the end of its ttl, as it can't be
// renewed; its key can't be deleted either, and stays in the way of others until the right is
// back or the session ends.
//
// # Notes
//
// What processes tell each other (driver.Noter) is below lockgen., each on an etcd lease
// of its own: lockgen.process/<UUID of its owner ids> says who a process is, lockgen.wait/<key> what
// the holder of a lock waits for, and lockgen.order/<outer> > <inner> where locks were nested in
// this order. A user without the right to write there has no names in lockctl, and deadlocks
// between processes are not found:
//
//	etcdctl role grant-permission locks --prefix=true readwrite lockgen.
//
// TLS and credentials are those of the client. A client with a password that has sent nothing
// for as long as etcd's --auth-token-ttl, five minutes by default, logs in again by itself;
// etcd 3.4.23 refuses that because of the old token, and a new client is needed.
//
// The client may be used for other things as well. The wrappers of
// clientv3/namespace have no effect here: write the prefix into the key.
package etcdlock
