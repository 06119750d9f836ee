package engine

import "hash/fnv"

// Weight is the place of a member in the order of key, which differs for each key: the first has the
// greatest. A member that is added changes the order of no others (rendezvous hashing).
func Weight(member, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	w := h.Sum64() // FNV alone mixes the last bytes too little
	w = (w ^ w>>33) * 0xff51afd7ed558ccd
	w = (w ^ w>>33) * 0xc4ceb9fe1a85ec53
	return w ^ w>>33
}
