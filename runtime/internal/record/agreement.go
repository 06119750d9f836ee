package record

import (
	"context"
	"time"
)

// valueLasts is for how long after its last write an engine with a clock keeps the value
// on which processes agree: for good, as people count.
const valueLasts = 10 * 365 * 24 * time.Hour

type methods = Methods // so that a Backend that embeds a Register has no exported field by it

// Register are the Methods of a Backend that is a [driver.Agreement] as well.
type Register struct{ methods }

// Register returns those of l.
func (l *Locks) Register() Register { return Register{l.Methods()} }

// CompareAndSwap implements [driver.Agreement].
func (r Register) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	v, _, err := r.locks.update(ctx, Write{Key: key, Takes: old != next, Waits: old != next}, func(s *State, _ Time) (bool, error) {
		if len(s.In)+len(s.Queue) > 0 {
			return false, Beside("a lock", "a value")
		}
		if string(s.Value) != old || old == next {
			return false, nil
		}
		s.Value = Text(next)
		return true, nil
	})
	return string(v.state.Value), err
}

// idle reports whether s holds nothing that lasts but what keep says.
func (s *State) idle() bool { return len(s.In)+len(s.Queue)+len(s.Done) == 0 && s.Value == "" }
