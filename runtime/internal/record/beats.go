package record

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// maxBeats bounds the keys whose beats are remembered. If a key is forgotten and its holder has
// died, waiters wait for another whole lease.
const maxBeats = 100_000

// beat stands for the end of a lease at an engine without a clock: a mark that changes whenever the
// lease is renewed, and the lease's length. Each process counts the length by its own monotonic
// clock from when it first saw the mark. That is after the mark was written, so no process
// considers a lease over before its holder does. A process that comes to a key whose holder has
// died waits for a whole lease. (client-go's leader election judges leases in the same way.)
type beat struct {
	Mark  string `json:"mark,omitempty"`
	Lasts int64  `json:"lasts,omitempty"` // µs
}

// ResolveRevision puts tokens into the value of a new record at an engine without a clock. They
// come from the revision of the record's first write. Later tokens count on from these, and stay
// below those of its last revision: each lease needs a write, and has at most 2^16 tokens.
func ResolveRevision(value string, revision uint64) string {
	if !strings.Contains(value, `"@`) {
		return value
	}
	return replacePlaceholders(value, func(_ byte, n uint64) uint64 { return revision<<engine.TokenBits + n })
}

// beats holds when each mark at one key was first seen.
type beats map[string]Time

// localTime is the monotonic clock of this process.
func (l *Locks) localTime() Time { return Time(time.Since(l.began).Microseconds()) + 1 }

// withBeats encodes s with beats in place of instants.
func (s *State) withBeats(version string) string {
	stored := s.clone()
	marks := 0
	stored.eachEnd(func(until *Time, b *beat) {
		if *until < 0 {
			marks++
			*b = beat{Mark: version + strconv.Itoa(marks), Lasts: -int64(*until)}
		}
		*until = 0
	})
	return encode(version, &stored)
}

// resolveBeatsLocked sets the instants of s, which is at key now, from its beats, by the clock of
// this process. own is "", or the version of a write of this process that was sent after now; its
// marks count from now.
func (l *Locks) resolveBeatsLocked(key string, s *State, own string, now Time) {
	before, after := l.beats[key], beats{}
	s.eachEnd(func(until *Time, b *beat) {
		if b.Mark == "" {
			return
		}
		first, known := before[b.Mark]
		if own != "" && strings.HasPrefix(b.Mark, own) {
			first = now // even if another goroutine here saw it before the answer came
		} else if !known {
			first = l.localTime()
		}
		after[b.Mark] = first
		*until = first + Time(b.Lasts)
	})
	if delete(l.beats, key); len(after) == 0 {
		return
	}
	if len(l.beats) >= maxBeats {
		clear(l.beats)
	}
	l.beats[key] = after
}

// recheckAfter is when to look again at a record that must be kept for longer, or could not be
// removed.
const recheckAfter = 10 * time.Minute

// removeLater removes the record of key, which nobody uses, after this time. Each record has at
// most one goroutine. Goroutines do not pile up while the engine is away, because no record is
// written then.
func (l *Locks) removeLater(key string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.removing[key] {
		return
	}
	l.removing[key] = l.life.Go(func(ctx context.Context) {
		if !engine.Pause(ctx, min(after, recheckAfter)) {
			return
		}
		leave, err := l.removals.Enter(ctx, "") // one at a time: an engine may refuse many requests of one client
		if err != nil {
			return
		}
		defer leave()
		l.mu.Lock()
		delete(l.removing, key) // the next call that leaves the record unused calls removeLater again
		l.mu.Unlock()
		l.removeUnused(ctx, key)
	})
}

// removeUnused removes the record of key if nobody uses it and it need not be kept.
func (l *Locks) removeUnused(ctx context.Context, key string) {
	v, _, err := l.update(ctx, Write{Key: key}, func(s *State, now Time) (bool, error) {
		return s.idle() && s.Keep.left(now) <= 0, nil
	})
	left := v.state.Keep.left(v.now)
	switch {
	case errors.Is(err, driver.ErrConflict): // something else is at the key
	case err != nil:
		l.removeLater(key, recheckAfter)
	case v.state.idle() && left > 0:
		l.removeLater(key, left)
	}
}
