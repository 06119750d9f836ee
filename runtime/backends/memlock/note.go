package memlock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter].
func (b *Backend) PutNote(_ context.Context, key, text string, ttl time.Duration) error {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ttl <= 0 {
		delete(s.notes, key)
		return nil
	}
	s.notes[key] = value{text, driver.Now().Add(ttl)}
	return nil
}

// Note implements [driver.Noter].
func (b *Backend) Note(_ context.Context, key string) (string, error) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.notes[key]; v.until.Left() > 0 {
		return v.text, nil
	}
	return "", nil
}
