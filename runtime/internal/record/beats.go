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

// manyBeats bounds for how many keys beats are remembered. To forget one costs that its
// holder, should it have died, is waited for anew.
const manyBeats = 100_000

// An engine without a clock keeps no instants. What lasts has a beat in place of one: a
// mark that changes each time when it begins anew, and for how long it lasts then. Each
// process counts that by its own monotonic clock from when it first saw the mark: that was
// after it was written, so no process takes a lease for over before its holder does. Who
// comes to a key whose holder has died waits for a whole lease, counted from when it came.
// (client-go's leader election judges leases so.)
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
	return replaceMarks(value, func(_ byte, n uint64) uint64 { return revision<<engine.TokenBits + n })
}

// beats are when the marks of one key were seen first.
type beats map[string]Time

// localTime is the monotonic clock of this process.
func (l *Locks) localTime() Time { return Time(time.Since(l.began).Microseconds()) + 1 }

// withBeats encodes s with beats in place of instants.
func (s *State) withBeats(version string) string {
	stored := s.clone()
	marks := 0
	stored.ends(func(until *Time, b *beat) {
		if *until < 0 {
			marks++
			*b = beat{Mark: version + strconv.Itoa(marks), Lasts: -int64(*until)}
		}
		*until = 0
	})
	return encode(version, &stored)
}

// hearLocked puts instants by the clock of this process in place of the beats of s, which
// is at key now. Those that the write of the version own has begun count from before that.
func (l *Locks) hearLocked(key string, s *State, own string, now Time) {
	before, after := l.beats[key], beats{}
	s.ends(func(until *Time, b *beat) {
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
	if len(l.beats) >= manyBeats {
		clear(l.beats)
	}
	l.beats[key] = after
}

// sweepWithin is how long it takes at most until a record is looked at again that is kept for longer, or
// could not be removed.
const sweepWithin = 10 * time.Minute

// sweep removes the record of key, which nobody uses, once after has passed. There are no more of
// these goroutines than records that this process has left at the engine: where none can be removed,
// none is written.
func (l *Locks) sweep(key string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweeps[key] {
		return
	}
	l.sweeps[key] = l.life.Go(func(ctx context.Context) {
		if !engine.Pause(ctx, min(after, sweepWithin)) {
			return
		}
		leave, err := l.removals.Enter(ctx, "") // all at once would be more than an engine takes of one client
		if err != nil {
			return
		}
		defer leave()
		l.mu.Lock()
		delete(l.sweeps, key) // whoever leaves the record from then on calls sweep anew
		l.mu.Unlock()
		l.removeUnused(ctx, key)
	})
}

// removeUnused removes the record of key if nobody uses it and it need not be kept.
func (l *Locks) removeUnused(ctx context.Context, key string) {
	v, _, err := l.update(ctx, Write{Key: key}, func(s *State, now Time) (bool, error) {
		return s.idle() && s.Keep.from(now) <= 0, nil
	})
	left := v.state.Keep.from(v.now)
	switch {
	case errors.Is(err, driver.ErrConflict): // something else is at the key
	case err != nil:
		l.sweep(key, sweepWithin)
	case v.state.idle() && left > 0:
		l.sweep(key, left)
	}
}
