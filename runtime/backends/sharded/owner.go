package sharded

import "hash/fnv"

// owner returns which of names has key: the one of the highest weight with it. So a name that
// is added takes keys, and none moves between the others (rendezvous hashing).
func owner(names []string, key string) (first string) {
	var most uint64
	for _, name := range names {
		if w := weight(name, key); first == "" || w > most {
			first, most = name, w
		}
	}
	return first
}

func weight(name, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	w := h.Sum64() // FNV alone mixes the last bytes too little
	w = (w ^ w>>33) * 0xff51afd7ed558ccd
	w = (w ^ w>>33) * 0xc4ceb9fe1a85ec53
	return w ^ w>>33
}
