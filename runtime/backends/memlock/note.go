package memlock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter].
func (b *Backend) PutNote(_ context.Context, name, text string, ttl time.Duration) error {
	s := b.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ttl <= 0 {
		delete(s.notes, name)
		return nil
	}
	s.notes[name] = value{text, driver.Now().Add(ttl)}
	return nil
}

// Note implements [driver.Noter].
func (b *Backend) Note(_ context.Context, name string) (string, error) {
	s := b.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.notes[name]; v.until.Left() > 0 {
		return v.text, nil
	}
	return "", nil
}
