package memlock

import (
	"strings"
	"time"
)

// Records returns how many keys b keeps a record of.
func (b *Backend) Records() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.keys)
}

// Remove forgets who holds key, as a server that lost its data would.
func (b *Backend) Remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.keys[key]; r != nil {
		r.owner, r.expires = "", time.Time{}
	}
}

// Kept returns the keys with prefix that are held or waited for.
func (b *Backend) Kept(prefix string) (keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, r := range b.keys {
		if strings.HasPrefix(key, prefix) && (r.owner != "" && time.Now().Before(r.expires) || len(r.waiting) > 0) {
			keys = append(keys, key)
		}
	}
	return keys
}
