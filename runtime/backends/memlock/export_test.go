package memlock

import (
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// each calls f for each record of b.
func (b *Backend) each(f func(key string, r *record)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for key, r := range s.keys {
			f(key, r)
		}
		s.mu.Unlock()
	}
}

// Records returns how many keys b keeps a record of.
func (b *Backend) Records() (n int) {
	b.each(func(string, *record) { n++ })
	return n
}

// Remove forgets who holds key, as a server that lost its data would.
func (b *Backend) Remove(key string) {
	b.each(func(k string, r *record) {
		if k == key {
			r.owner, r.expires = "", driver.Instant{}
		}
	})
}

// Kept returns the keys with prefix that are held or waited for.
func (b *Backend) Kept(prefix string) (keys []string) {
	b.each(func(key string, r *record) {
		if strings.HasPrefix(key, prefix) && (r.owner != "" && r.expires.Left() > 0 || len(r.waiting) > 0) {
			keys = append(keys, key)
		}
	})
	return keys
}
