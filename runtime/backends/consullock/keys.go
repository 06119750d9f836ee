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
	// ours is the prefix of what is stored beside the locks.
	ours = "lockgen/"
	// maxKey keeps a key well within a URL and the server's memory; Consul
	// itself names no limit.
	maxKey = 4096
	// maxTTL is the longest lease. Its session, see sessionTTL, is shorter than maxSession.
	maxTTL = 12 * time.Hour
	// maxSession is the longest session that Consul grants.
	maxSession = 24 * time.Hour
	// noLockDelay is none: the client takes 0 for unset, and what is positive for 1 ms at least.
	noLockDelay = time.Duration(-1)
)

// queuePrefix is where the entries of those that wait for key are: nothing but these,
// as the name of no other key begins so.
func queuePrefix(key string) string {
	return ours + "queue/" + escape(key) + "/"
}

func escape(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%", "=") }

// tombstoneOf is the key that is there if the acquisition with this ID was undone, and an attempt of it
// may be on its way.
func tombstoneOf(id string) string { return ours + "undone/" + id }

// isID reports whether the value of a lock looks like the ID of an acquisition.
func isID(value string) bool {
	process, _, ok := strings.Cut(value, ":")
	return ok && len(process) == 36
}

// checkKey refuses the keys that not every client of Consul takes for the same:
// /v1/kv cleans paths and refuses some, and JSON replaces what is not UTF-8.
func checkKey(key string) error {
	name := strings.TrimSuffix(key, "/")
	if name != "" && len(key) <= maxKey && utf8.ValidString(key) && strings.Trim(key, " ") == key &&
		path.Clean("/"+name) == "/"+name && !strings.HasPrefix(key, ours) {
		return nil
	}
	return fmt.Errorf("%w: Consul can't have the key %.100q of %d bytes: a key is UTF-8 of 1 to %d bytes, has no space at its ends, "+
		"does not begin with a slash or %s, and has no empty part, . or .. between slashes", driver.ErrInvalid, key, len(key), maxKey, ours)
}

// watchedPath returns what a blocking query for key asks for: the key itself
// or, as /v1/kv refuses keys that would hold a space or two dots if they were
// decoded once more, and cleans paths, a long beginning of it that is served, as
// a prefix. It returns "" if there is none.
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

// class is the longest ttl of the leases that share a session.
type class time.Duration

func classOf(ttl time.Duration) class { return class(engine.ClassTTL(ttl)) }

// sessionTTL is what Consul is asked for: a third more than the leases last, so
// that a session that is renewed as often as they are has always a whole lease
// ahead of it, for whoever comes next.
func (c class) sessionTTL() time.Duration {
	return time.Duration(c + c/3).Truncate(time.Millisecond)
}

// lockFlag marks a key as a lock for every client of Consul.
const lockFlag = uint64(api.LockFlagValue)
