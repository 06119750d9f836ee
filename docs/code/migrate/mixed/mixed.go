// Package mixed is a fleet of which some processes still lock by a string: see
// docs/migration.md.
package mixed

import (
	"errors"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// NewLocker returns the Locker of the new processes, which wait for the strings of the old
// ones.
func NewLocker(client *redis.Client) *lock.Locker {
	return lock.New(redislock.New(client, redislock.Options{WaitForStrings: true}), nil)
}

// isHeld is for the old processes on bsm/redislock: whether Obtain found that another has
// the lock. Its script reads the value at the key, which fails on the hash of a new process.
func isHeld(err error) bool {
	return errors.Is(err, bsm.ErrNotObtained) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

var _ = isHeld
