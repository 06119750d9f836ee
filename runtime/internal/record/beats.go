package record

import (
	"context"
	"strconv"
	"strings"
	"time"

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

// revisionBits is how far a revision is shifted to make a token of it: the bits below count
// those that are handed on.
const revisionBits = 16

// FloorOf is [Answer].Floor at an engine whose revision is so high: whatever is written next
// has a higher one.
func FloorOf(revision uint64) Token { return Token((revision + 1) << revisionBits) }

// Heard takes down the value that the engine has told of a key, unasked. It reports whether the acquisition with this ID waits still and, if it
// is the next to come in, how long it is until the first lease of those inside ends.
func (l *Locks) Heard(key, value, id string) (waits bool, free time.Duration) {
	version, s, err := decode(value)
	if err != nil || version == "" {
		return false, 0
	}
	l.mu.Lock()
	l.hearLocked(key, &s, "", localTime())
	l.mu.Unlock()
	if at := find(s.Queue, id); at != 0 {
		return at > 0, 0
	}
	return true, view{state: s, now: localTime()}.freeIn()
}

// beats are when the marks of one key were seen first.
type beats map[string]Time

var start = time.Now()

// localTime is the monotonic clock of this process.
func localTime() Time { return Time(time.Since(start).Microseconds()) + 1 }

// withBeats encodes s with beats in place of instants.
func (s *State) withBeats(version string) string {
	stored := s.clone()
	marks := 0
	mark := func(until *Time, b *beat) {
		if *until < 0 {
			marks++
			*b = beat{Mark: version + strconv.Itoa(marks), Lasts: -int64(*until)}
		}
		*until = 0
	}
	for _, all := range [][]Party{stored.In, stored.Queue} {
		for i := range all {
			mark(&all[i].Until, &all[i].Beat)
		}
	}
	mark(&stored.Keep, &stored.KeepBeat)
	return encode(version, &stored)
}

// hearLocked puts instants by the clock of this process in place of the beats of s, which
// is at key now. Those that the write of the version own has begun count from before that.
func (l *Locks) hearLocked(key string, s *State, own string, now Time) {
	before, after := l.beats[key], beats{}
	hear := func(until *Time, b beat) {
		if b.Mark == "" {
			return
		}
		first, known := before[b.Mark]
		switch {
		case known:
		case own != "" && strings.HasPrefix(b.Mark, own):
			first = now
		default:
			first = localTime()
		}
		after[b.Mark] = first
		*until = first + Time(b.Lasts)
	}
	for _, all := range [][]Party{s.In, s.Queue} {
		for i := range all {
			hear(&all[i].Until, all[i].Beat)
		}
	}
	hear(&s.Keep, s.KeepBeat)
	if delete(l.beats, key); len(after) == 0 {
		return
	}
	if len(l.beats) >= manyBeats {
		clear(l.beats)
	}
	l.beats[key] = after
}

// sweep removes the record of key, which is to be kept for so long, and that nobody has
// used since.
func (l *Locks) sweep(key, version string, after time.Duration) {
	l.life.Go(func(ctx context.Context) {
		if !engine.Pause(ctx, after) {
			return
		}
		l.mu.Lock()
		unchanged := l.seen[key].version == version
		l.mu.Unlock()
		if !unchanged {
			return
		}
		_, _, _ = l.update(ctx, key, false, func(s *State, now Time) (bool, error) { // whoever uses it next does so too
			return len(s.In)+len(s.Queue)+len(s.Done) == 0 && s.Keep.from(now) <= 0, nil
		})
	})
}
