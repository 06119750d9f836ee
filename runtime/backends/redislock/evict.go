package redislock

import (
	"fmt"
	"strings"
)

// mayEvict says, by what INFO memory answered, why a server is not to be trusted
// with locks: its configuration lets it evict them.
func mayEvict(memory reply) (unfit error) {
	if memory.err() != nil {
		return nil // no right to ask, or no such command: it can't be known
	}
	info := map[string]string{}
	for line := range strings.Lines(memory.text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	limited := info["maxmemory"] != "" && info["maxmemory"] != "0"
	if policy := info["maxmemory_policy"]; limited && policy != "noeviction" {
		return fmt.Errorf("the server may evict locks: its maxmemory-policy is %s; set noeviction, "+
			"or accept it by redislock.Options.AllowEviction", policy)
	}
	return nil
}
