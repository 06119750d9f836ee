package sharded

import "github.com/lockgen/lockgen/runtime/internal/engine"

// owner returns which of names has key: the one of the highest weight with it. So a name that
// is added takes keys, and none moves between the others (rendezvous hashing).
func owner(names []string, key string) (first string) {
	var most uint64
	for _, name := range names {
		if w := engine.Weight(name, key); first == "" || w > most {
			first, most = name, w
		}
	}
	return first
}
