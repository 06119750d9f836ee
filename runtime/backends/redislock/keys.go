package redislock

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// keys are the names of what one lock keeps at the server. The lock and its
// channel are Redisson's (RLock: hash at the name itself, channel
// redisson_lock__channel:{name}); the rest is ours, and says so.
type keys struct {
	lock    string
	queue   string
	token   string
	channel string
}

// maxKey is the longest key taken, in bytes: as long as a name that a person
// can still read, and a small part of what each command carries.
const maxKey = 1024

func keysOf(name string) (keys, error) {
	if len(name) > maxKey {
		return keys{}, fmt.Errorf("%w: the key has %d bytes; redislock takes %d at most (hash what is longer)", driver.ErrInvalid, len(name), maxKey)
	}
	tag, err := tagged(name)
	if err != nil {
		return keys{}, err
	}
	own := tag
	if tag == name { // else the locks x and {x} would share keys of ours
		own += ":"
	}
	const queue, token, channel = "lockgen:queue:", "lockgen:token:", "redisson_lock__channel:"
	all := queue + own + token + own + channel + tag // one allocation
	q, t := len(queue)+len(own), len(token)+len(own)
	return keys{lock: name, queue: all[:q], token: all[q : q+t], channel: all[q+t:]}, nil
}

// tagged returns name such that prefix + tagged(name) is in the Redis Cluster
// slot of name, by Redisson's rule: {name}, or name itself if it has a hash tag.
func tagged(name string) (string, error) {
	open := strings.IndexByte(name, '{')
	if open < 0 && !strings.Contains(name, "}") {
		return "{" + name + "}", nil
	}
	if open < 0 || strings.IndexByte(name[open:], '}') <= 1 {
		return "", fmt.Errorf("%w: the key %q has an empty or unbalanced brace pair; Redis Cluster would place the lock's keys in different slots", driver.ErrInvalid, name)
	}
	return name, nil
}

// undone returns the name of the tombstone of the acquisition with this ID.
func (k keys) undone(id string) string {
	return "lockgen:undone:" + k.token[len("lockgen:token:"):] + ":" + id
}

// maxTTL is the longest lease: far below what the server's clock can hold
// when a tombstone's time is added.
const maxTTL = 10 * 365 * 24 * time.Hour

// vet returns the keys of a, or an error if the server would refuse it.
func vet(a *driver.Acquisition) (keys, error) {
	k, err := keysOf(a.Key)
	if err == nil && (a.TTL < time.Millisecond || a.TTL > maxTTL) {
		// The server would take the lock and drop it at once, or refuse halfway.
		err = fmt.Errorf("%w: a lease of %v; redislock takes from %v to %v", driver.ErrInvalid, a.TTL, time.Millisecond, maxTTL)
	}
	return k, err
}
