package redislock

import (
	"fmt"
	"strings"
)

// factsOf reads what INFO memory answered: nil if the server does not say, because
// we have no right to ask, or it knows no such command.
func factsOf(memory reply) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(memory.text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	if memory.err() != nil || facts["maxmemory_policy"] == "" {
		return nil
	}
	return facts
}

// mayEvict says why a server is not to be trusted with locks: its configuration
// lets it evict them.
func mayEvict(facts map[string]string) (unfit error) {
	limited := facts["maxmemory"] != "" && facts["maxmemory"] != "0"
	if policy := facts["maxmemory_policy"]; limited && policy != "noeviction" {
		return fmt.Errorf("the server may evict locks: its maxmemory-policy is %s; set noeviction, "+
			"or accept it by redislock.Options.AllowEviction", policy)
	}
	return nil
}
