package memlock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// value is a record, of a lock that is no mutex, or a note.
type value struct {
	text  string
	until driver.Instant
}

// methods are those that need records only: they call the waiters of a condition, tell who leads,
// and keep values.
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
	s.forgetExpiredLocked(clock)
	now := driver.At(clock)
	if m := s.mutexes[w.Key]; m != nil && m.owner != "" && now.Before(m.expires) {
		return record.Answer{}, record.InsteadOf(record.Mutex)
	}
	v := s.records[w.Key]
	if !now.Before(v.until) {
		v.text = ""
	}
	a := record.Answer{Value: v.text, Now: record.Time(s.micros(now))}
	if w.Look || record.Version(v.text) != w.Seen {
		return a, nil
	}
	a.Done, a.Value = true, record.Resolve(w.Value, a.Now)
	s.records[w.Key] = value{a.Value, now.Add(w.Lasts)}
	for _, id := range w.Granted {
		b.hub.Notify(id)
	}
	for _, id := range w.Wanted {
		b.kinds.Wanted(id)
	}
	return a, nil
}
