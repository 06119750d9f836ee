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

// maxBeats bounds the keys whose beats are remembered. If one is forgotten and its holder has died,
// whoever waits does so for another whole lease.
const maxBeats = 100_000

// beat stands for the end of a lease at an engine without a clock: a mark that changes whenever
// the lease is renewed, and the lease's length. Each process counts the length by its own
// monotonic clock from when it first saw the mark. That is after the mark was written, so no
// process takes a lease for over before its holder does. A process that comes to a key whose
// holder has died waits for a whole lease. (client-go's leader election judges leases so.)
type beat struct {
	Mark  string `json:"mark,omitempty"`
	Lasts int64  `json:"lasts,omitempty"` // µs
}

// ResolveRevision puts tokens into a value that an engine without a clock has: into that
// of a new record, which has the revision of its first write. All later tokens are below
// those of the record's last revision: each takes a write, and has 2^16 at most.
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

// resolveBeatsLocked sets the instants of s, which is at key now, from its beats, by the clock of this
// process. own is the version of this process's write, or "": its marks count from now, before it was sent.
func (l *Locks) resolveBeatsLocked(key string, s *State, own string, now Time) {
	before, after := l.beats[key], beats{}
	s.eachEnd(func(until *Time, b *beat) {
		if b.Mark == "" {
			return
		}
		first, known := before[b.Mark]
		if own != "" && strings.HasPrefix(b.Mark, own) {
			first = now // though another goroutine here has seen it since, before its answer came
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

// recheckAfter is when a record is looked at again that must be kept for longer, or could not be removed.
const recheckAfter = 10 * time.Minute

// removeLater removes the record of key, which nobody uses, after this time. Each record has one goroutine
// at most. They do not pile up while the engine is away, because no record is written then.
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
		leave, err := l.removals.Enter(ctx, "") // all at once would be more than an engine takes of one client
		if err != nil {
			return
		}
		defer leave()
		l.mu.Lock()
		delete(l.removing, key) // whoever leaves the record after this calls removeLater again
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
