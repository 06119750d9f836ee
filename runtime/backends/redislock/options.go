package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Options of a [Backend].
type Options struct {
	// AllowEviction accepts a server with a maxmemory-policy other than
	// noeviction. Such a server may evict a lock that is held, which lets a
	// second holder in.
	AllowEviction bool

	// Replicas is how many replicas must have a lock before it counts as
	// taken: WAIT on the connection that took it. If fewer have it within
	// ReplicaTimeout, the lock is given back and the acquire fails with
	// driver.ErrUnavailable. 0, the default, asks nothing and costs nothing.
	//
	// It makes it rarer, by far, that a failover loses a lock, and does not
	// prove that none is lost: the replica that is promoted need not be one of
	// those that answered (unless Replicas is the number of all), a replica may
	// restart empty, renewals are not waited for, and until the acquire was
	// given back others found the lock held. The fencing token remains what
	// guards a write. An acquire that is not contended costs one command more.
	Replicas int
	// ReplicaTimeout is 1s unless set.
	ReplicaTimeout time.Duration

	// WaitForStrings makes a mutex wait for a string at its key as it waits for a holder.
	// redsync, bsm/redislock and any SET NX PX write such strings, so a service that locks
	// by one of them can be replaced process by process. Without it such a string is
	// driver.ErrConflict at once. Both exclude each other either way; the string is never
	// overwritten or deleted. (On a lock of ours redsync's attempts fail as on one of its own;
	// those of bsm/redislock fail with WRONGTYPE, which it returns without waiting.)
	//
	// There is no notice when such a string is gone, so a process that waits for one asks about
	// 20 times a second, by two commands, and once more when the string expires. It has no place
	// in the queue meanwhile. A string without an expiry remains driver.ErrConflict,
	// because nothing would end the wait; so does the record of a lock that is no mutex. A
	// string with an expiry that is no lock, such as a cached value, is waited for as well.
	// Locks that are no mutexes do not wait for strings. An ACL user needs
	// +getrange beside the rights in the package's documentation.
	WaitForStrings bool

	// Hooks see the commands of the lock, besides those of a *redis.Client that New
	// is given. They are for a *redis.ClusterClient and for Open, whose hooks can't be
	// copied.
	Hooks []redis.Hook
}
