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

const (
	// sweepEvery is how often a process looks for records that need not be kept any more.
	sweepEvery = 20 * time.Second
	// sweepAgain is when a record is tried again that could not be removed.
	sweepAgain = 10 * time.Minute
)

// sweep removes the record of key, which nobody uses, once after has passed. Of several calls for
// one key the earliest time counts. There are no more keys in sweeps than records that this process
// has left at the engine: where none can be removed, none is written.
func (l *Locks) sweep(key string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.localTime() + Time(after.Microseconds())
	if earlier, ok := l.sweeps[key]; !ok || due < earlier {
		l.sweeps[key] = due
	}
	if !l.sweeping {
		l.sweeping = l.life.Go(l.sweepAll)
	}
}

// sweepAll removes records as they are due, until there are none left.
func (l *Locks) sweepAll(ctx context.Context) {
	for more := true; more && engine.Pause(ctx, sweepEvery); {
		var due []string
		due, more = l.takeDue()
		for _, key := range due {
			l.removeUnused(ctx, key)
		}
	}
}

// takeDue returns what is due, and forgets it: whoever leaves one of these records from then on
// calls sweep anew. more is false if there was nothing at all.
func (l *Locks) takeDue() (keys []string, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweeping = len(l.sweeps) > 0
	for key, due := range l.sweeps {
		if due <= l.localTime() {
			keys = append(keys, key)
			delete(l.sweeps, key)
		}
	}
	return keys, l.sweeping
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
		l.sweep(key, sweepAgain)
	case v.state.idle() && left > 0:
		l.sweep(key, left)
	}
}
