package consullock

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// ownPrefix is the prefix of all keys of this package that are no locks.
	ownPrefix = "lockgen/"
	// maxKey keeps a key well within a URL and the server's memory; Consul
	// itself names no limit.
	maxKey = 4096
	// maxTTL is the longest lease. Its session, see sessionTTL, is shorter than maxSession.
	maxTTL = 12 * time.Hour
	// maxSession is the longest session that Consul grants.
	maxSession = 24 * time.Hour
	// noLockDelay asks for no lock-delay: the client takes 0 for unset, and a positive one for 1 ms
	// at least.
	noLockDelay = time.Duration(-1)
)

// queuePrefix returns the prefix of the queue entries of those that wait for key. No other key
// begins with it.
func queuePrefix(key string) string {
	return ownPrefix + "queue/" + escape(key) + "/"
}

func escape(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%", "=") }

// tombstoneOf returns the key that exists if the acquisition with this ID was undone while an attempt
// of it might still arrive.
func tombstoneOf(id string) string { return ownPrefix + "undone/" + id }

// isID reports whether the value of a lock looks like the ID of an acquisition.
func isID(value string) bool {
	process, _, ok := strings.Cut(value, ":")
	return ok && len(process) == 36
}

// checkKey refuses the keys that not every client of Consul takes as they are: /v1/kv cleans
// paths and refuses some, and JSON replaces what is not UTF-8.
func checkKey(key string) error {
	name := strings.TrimSuffix(key, "/")
	if name != "" && len(key) <= maxKey && utf8.ValidString(key) && strings.Trim(key, " ") == key &&
		path.Clean("/"+name) == "/"+name && !strings.HasPrefix(key, ownPrefix) {
		return nil
	}
	return fmt.Errorf("%w: Consul can't have the key %.100q of %d bytes: a key is UTF-8 of 1 to %d bytes, has no space at its ends, "+
		"does not begin with a slash or %s, and has no empty part, . or .. between slashes", driver.ErrInvalid, key, len(key), maxKey, ownPrefix)
}

// watchedPath returns what a blocking query for key asks for: key itself if /v1/kv serves
// it. That cleans paths, and refuses a key that would hold a space or two dots if it were
// decoded once more. Else it returns a beginning of key that is served, to be asked for as
// a prefix, or "" if there is none.
func watchedPath(key string) (served string, prefix bool) {
	for try := key; try != ""; prefix = true {
		decoded, err := url.PathUnescape(try)
		if err != nil || decoded == try || !strings.Contains(decoded, "..") && !strings.Contains(decoded, " ") {
			served := strings.TrimRight(try, " ")
			if clean := strings.TrimSuffix(served, "/"); path.Clean(served) == clean && clean != "." && clean != ".." {
				return served, prefix
			}
		}
		at := max(strings.LastIndexAny(try, "%/"), 0)
		if try[at] == '/' && at < len(try)-1 {
			at++ // the slash is served
		}
		try = try[:at]
	}
	return "", true
}

// class is what the leases that share a session have in common: the greatest of their ttls.
type class time.Duration

func classOf(ttl time.Duration) class { return class(engine.ClassTTL(ttl)) }

// sessionTTL returns the TTL that Consul is asked for: a third more than the leases last. So a
// session that is renewed as often as they are always has a whole lease ahead, for the next
// acquisition.
func (c class) sessionTTL() time.Duration {
	return time.Duration(c + c/3).Truncate(time.Millisecond)
}

// lockFlag marks a key as a lock for every client of Consul.
const lockFlag = uint64(api.LockFlagValue)
