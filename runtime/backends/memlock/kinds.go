package memlock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// value is the record of a key that a lock of another kind than a mutex has.
type value struct {
	text  string
	until driver.Instant
}

// methods has a Backend call those that wait for a condition, tell who leads, and keep values.
type methods = record.Register

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store].
func (b store) Swap(_ context.Context, w record.Write) (record.Answer, error) {
	s := b.shard(w.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := time.Now()
	s.expireLocked(clock)
	now := driver.At(clock)
	if r := s.keys[w.Key]; r != nil && r.owner != "" && now.Before(r.expires) {
		return record.Answer{}, record.InsteadOf(record.Mutex)
	}
	v := s.values[w.Key]
	if !now.Before(v.until) {
		v.text = ""
	}
	a := record.Answer{Value: v.text, Now: record.Time(s.micros(now))}
	if w.Look || record.Version(v.text) != w.Seen {
		return a, nil
	}
	a.Done, a.Value = true, record.Resolve(w.Value, a.Now)
	s.values[w.Key] = value{a.Value, now.Add(w.Lasts)}
	for _, id := range w.Granted {
		b.hub.Notify(id)
	}
	for _, id := range w.Wanted {
		b.kinds.Wanted(id)
	}
	return a, nil
}
