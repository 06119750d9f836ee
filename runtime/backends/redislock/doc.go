// Package redislock is a lock backend on Redis, standalone, behind Sentinel or
// as a Cluster, from version 6.2. A lock is the hash that Redisson's RLock
// writes, so that a Java service on Redisson and a lockgen service exclude and
// wake each other on one key; field <uuid>:<n> is the owner's, with value 1. A
// re-entry is counted in the process and leaves it at 1: a counter at the
// server would count a command that was sent twice. Read-write locks, fair locks and
// semaphores do not exclude Redisson's RReadWriteLock, RFairLock, RSemaphore and
// RPermitExpirableSemaphore: see below.
//
// One Redis whose replica is promoted can lose a lock that the replica had not
// received, and one that restarts loses what it had not written to disk, without
// persistence all locks: two holders are then possible until the first one's lease
// ends. Guard what must never be written twice by the fencing token, which keeps
// rising all the same. [Options].Replicas makes the former rarer.
//
// While a primary that Sentinel or a Cluster looks after is replaced, or a slot
// is on its way, calls that may wait also wait for that, each until its
// context ends and, counted from the first call that failed, for 10 s at most;
// then, and with a policy that says try, calls are sent again for about half a
// second, 5 s if no server answers, and fail with driver.ErrUnavailable, or with
// driver.ErrIndeterminate if one of them may have arrived. A server by itself is not
// waited for longer if it refuses, and is asked twice if it is silent: each time for
// as long as the client's timeouts allow, unless the context ends. Holders keep the
// lock if the new primary has it and their lease lasts until then, and hear of its
// loss otherwise.
//
// In a Cluster all keys of a lock are in the slot of its name. A held lock
// outlasts the migration of its slot and can be renewed and released meanwhile;
// servers refuse to take a lock of the slot (TRYAGAIN) until all of its keys have
// arrived. Releases are announced, and listened for, on the lock's plain channel
// and, from Redis 7.0 on, on the sharded one: Redisson uses either, depending on
// its version.
//
// Only mutexes are shared with Redisson. Read-write locks, fair locks, semaphores and
// conditions are a record of this package: a string at the key. Redisson's RReadWriteLock,
// RFairLock, RSemaphore and RPermitExpirableSemaphore write another layout, and do not meet
// them: a call that finds the other's value at the key gets driver.ErrConflict, which names it, or
// in Redisson an error of its own. On the name of a mutex, RReadWriteLock and RLock do not exclude each
// other; use RLock on the Java side. A key whose record was used in the last 2.5 s can't be
// that of a mutex.
//
// By TLS, or by a Dialer whose connections are no sockets, go-redis does not see that a connection
// was closed while it lay idle (by the server's timeout, or a load balancer): the next call may get
// driver.ErrIndeterminate. Set ConnMaxIdleTime of the client to less than they wait.
//
// While a server is away, go-redis prints each connection that it can't dial by its
// own logger; redis.SetLogger changes that.
//
// Least rights of an ACL user, for locks under seckill::
//
//	+evalsha +eval +time +exists +type +hexists +hkeys +hset +hdel +get +set +pttl +pexpire
//	+incrby +zadd +zcard +zrange +zrem +publish +subscribe +unsubscribe +ping
//	+pubsub|numsub +info|memory +info|server ~seckill:* ~lockgen:* &redisson_lock__channel:* &lockgen:*
//
// (+info is for the check of the eviction policy, made on each new connection, and for
// whether one command may be about many locks; without it, and without publish, locks
// work, unchecked and by polling, and each is taken, renewed and released by a command
// of its own. A process that may not subscribe polls too, and has no place in the queue: the
// lock goes to the processes that have one, and while some of them wait it may never get it.
// Redis 7 gives a new user no channel unless one is named. A proxy that hangs up on INFO, as
// twemproxy does, can't be used. For an error to name a string that is no lock, +getrange is
// needed. Without +pubsub Redisson's clients get less than their share; without +psubscribe and
// &* a process of ours that waits for a client of Redisson counts as one.) A Cluster needs
// +cluster|slots +asking as well and, for its sharded channels, +pubsub|shardnumsub +spublish
// +ssubscribe +sunsubscribe; Replicas needs +wait. The records of packages sharded, failover and
// quorum need ~lockgen.* at each of their members.
package redislock
