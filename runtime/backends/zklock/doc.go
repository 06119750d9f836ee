// Package zklock is a lock backend on Apache ZooKeeper, from version 3.5.3. It takes
// its options' types from github.com/go-zookeeper/zk. Its locks and those of Curator's
// InterProcessMutex, of go-zookeeper's zk.Lock and of kazoo's Lock exclude each other.
// kazoo's needs extra_lock_patterns=["-lock-"]: without it, kazoo does not see the
// nodes of this package, and enters beside them. Read-write locks and semaphores do not
// meet Curator's InterProcessReadWriteLock and InterProcessSemaphoreV2: see below.
//
// # Layout
//
// A key is a directory below [Options].Root. Each contender has an ephemeral
// sequential node there, named as Curator names it,
//
//	_c_<uuid>-lock-<10 digits>
//
// The node with the lowest number owns the lock. Each of the others watches the one
// before it. The second watches itself as well, so that it has the lock without a
// request when the first goes. For Curator the path is "/lockgen/<key>". Nodes of
// kazoo's locks and ours are ordered by their numbers. A read-write lock or a semaphore of
// Curator's or kazoo's at the path, which would not exclude a mutex, is driver.ErrConflict.
// Other children are ignored here; go-zookeeper's own lock fails on them. The
// UUID is made of the acquisition's id, which the node also holds as its data. A
// directory that holds data is no lock's: such a key is driver.ErrConflict.
//
// The directory's name is the key, byte for byte, where ZooKeeper allows that.
// A slash, a control character, what is beyond Unicode's basic plane or in its
// private and special areas, what is no UTF-8, and "." and ".." are written as
// %XX, byte by byte in capital hex; so is the percent sign of a key that holds
// such a %XX already. Values that the generator has encoded, such as a%3Ab%40c,
// hold none of those but %2F, %25, control characters and what is not ASCII. For a
// key of the generator's, Curator is given the path "/lockgen/" and, in Java,
//
//	key.replaceAll("%(?=[0189A-F][0-9A-F]|2[5EF]|7[AF])", "%25")
//
// A name is at most 64 KiB long.
//
// Directories are made when they are missing, as containers: the server deletes
// them some time after their last node, and their numbers begin anew. Numbers that have
// wrapped around keep their order here, but not for Curator.
//
// # Other kinds of lock
//
// Read-write locks, fair locks, semaphores, conditions and what is run once are kept as
// records of this package, whatever Curator and kazoo have of that name: they do not meet
// Curator's InterProcessReadWriteLock and InterProcessSemaphoreV2 on one path. The record
// of a key is the data of one node in the key's directory,
//
//	lockgen-record-<16 hex digits>-<10 digits>
//
// It is persistent while somebody is inside or waits, and for as long as a request that
// had no answer may still arrive. Records do not depend on a session, so that a lease may
// have any length. A mutex of this package and a record on one key are driver.ErrConflict
// to each other. A mutex of Curator's or kazoo's does not see a record that was there
// first; go-zookeeper's fails on it. A record has 512 KiB at most, room for some thousands
// who wait.
//
// # Sessions and leases
//
// The leases of one length share one session, and so one connection. The first
// acquire makes it, and it is closed when nobody has used it for three of its
// timeouts. The session's timeout is the lease's length, an eighth more, and two
// ticks. A crashed holder's key is free when that has passed, and another tick. The node
// of a process that died while it waited is in the queue for as long, as one of Curator's
// is: when its turn comes, the lock is free and nobody gets it. Fair locks, which are records,
// pass over it after half a second. A
// Locker needs no request to renew, however many leases it has. Each session proves
// itself alive by two requests, an eighth of the length after the last two.
//
// The servers' minSessionTimeout and maxSessionTimeout bound a ttl. With their
// defaults and a tickTime of 2s that is from 4s to just below 32s; what is outside is
// driver.ErrInvalid, with the range.
//
// A lease's deadline counts what the leader has confirmed, from before it was
// sent. An answer to a read proves nothing, since the server that the client is
// connected to gives it alone. While there is no connection nothing is lost yet: the
// deadline stands, and another connection in time goes on with the session. If the
// server says that the session has expired, all its holders hear of it at once. If
// nothing has proved in time that the session lives, it ends by our own clock: it is
// closed at the server, if requests still arrive there, and not resumed. No later
// session revives what was held. A waiter begins again, at the end of the queue, on
// a new session. A lease that is not renewed ends by itself: its node is deleted.
//
// The fencing token is the czxid of the node, the transaction that created it,
// shifted left by 16 bits; the bits below count hand-offs inside a process. A
// Curator service can compute the same. The epoch of the leader's election is in
// the czxid, and within 63 bits there is room for 32,767 elections; an acquire
// after that is refused.
//
// Notes that processes read of each other (driver.Noter) are ephemeral nodes below
// <Root>/%note on the session of a lock that the process has: process/<UUID of its owner ids>
// says who it is, and wait/<key> what the holder of a lock waits for. In which order locks were
// nested is a persistent node, order/<outer> > <inner>, one for each pair of patterns. Order
// notes stay until somebody deletes them; those older than a week are ignored.
//
// # What can go wrong
//
// Two holders are possible where the clock of a server or a client runs wrong by
// more than a hundredth, or the servers lose their disks: a majority that starts
// from empty ones knows no locks, and begins its transactions, and the tokens,
// from one. minSessionTimeout below one tick needs Options.TickTime. A client's
// node that another client deletes by hand is noticed at the first renewal, and
// from then on at once.
//
// # Rights
//
// Least rights for the identity in [Options].Auth: create, delete and read (cdr)
// on Root and all below it, so Options.ACL needs no more than
// zk.DigestACL(zk.PermCreate|zk.PermDelete|zk.PermRead, user, password). If Root
// is to be made, create on the node above it. Read is needed to list
// a directory's children, and for the watch on the node before one's own: the end of a
// node that may not be read is noticed within a second. Delete on a directory
// allows to free any lock in it. The other kinds of lock need write as well (cdrw).
//
// TLS goes into [Options].Dialer. SASL is not supported.
package zklock
