package memlock

import (
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// each calls f for each mutex of b.
func (b *Backend) each(f func(key string, m *mutex)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for key, m := range s.mutexes {
			f(key, m)
		}
		s.mu.Unlock()
	}
}

// Records returns how many mutexes b keeps.
func (b *Backend) Records() (n int) {
	b.each(func(string, *mutex) { n++ })
	return n
}

// Values returns how many records of other kinds b keeps.
func (b *Backend) Values() (n int) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		n += len(s.records)
		s.mu.Unlock()
	}
	return n
}

// Remove forgets the holder of key, like a server that has lost its data.
func (b *Backend) Remove(key string) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
	if m := s.mutexes[key]; m != nil {
		m.owner, m.expires = "", driver.Instant{}
	}
}

// Kept returns the keys with prefix that are held or waited for.
func (b *Backend) Kept(prefix string) (keys []string) {
	b.each(func(key string, m *mutex) {
		if strings.HasPrefix(key, prefix) && (m.owner != "" && m.expires.Left() > 0 || len(m.waiting) > 0) {
			keys = append(keys, key)
		}
	})
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for key, v := range s.records {
			if strings.HasPrefix(key, prefix) && v.until.Left() > 0 && !record.Idle(v.text) {
				keys = append(keys, key)
			}
		}
		s.mu.Unlock()
	}
	return keys
}

// SawClock makes b behave as if the wall clock had shown that time, and was set back since.
func (b *Backend) SawClock(clock time.Time) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.floorLocked(clock)
		s.mu.Unlock()
	}
}
