// Package bootclock tells the time by a clock that nobody can set and that runs on
// while the machine sleeps (suspend, hibernation). Go's monotonic clock stands still
// in a sleep.
package bootclock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Read returns the time since boot with the machine's sleep. A test replaces it
// to suspend the machine.
var Read = ReadSystem

// Time is an instant, in nanoseconds: the monotonic clock's, and how long the machine
// has slept. The zero Time has passed.
type Time int64

var (
	started = time.Now()
	base    = started.UnixNano() // so that bubbles, which have no monotonic clock, have times alike
)

// reading is what was last known of the machine's sleep.
type reading struct {
	slept time.Duration // since boot; it only rises
	ahead time.Duration // of the wall clock over the monotonic clock
}

var (
	mu   sync.Mutex // guards Measure
	last atomic.Pointer[reading]
)

// maxDrift is how far wall clock and monotonic clock may move against each other before At
// asks the kernel. It is less than the margin of any deadline.
const maxDrift = time.Millisecond

// Now returns the present instant.
func Now() Time { return At(time.Now()) }

// At returns the instant at which now was read from the clock. The kernel's boot clock
// costs a system call, so At reads it only when the wall clock has moved against the
// monotonic clock since that was last done. It does over every sleep: the kernel adds
// what the machine has slept to the wall clock and to the boot clock alike.
func At(now time.Time) Time {
	if isSynctest(now) {
		return Time(now.UnixNano())
	}
	awake := now.Sub(started)
	r := last.Load()
	if r == nil || (wallAhead(now, awake)-r.ahead).Abs() > maxDrift {
		return Time(base) + Time(awake+Measure())
	}
	return Time(base) + Time(awake+r.slept)
}

// Add returns the instant d after t: the last one there is, if that is further away.
func (t Time) Add(d time.Duration) Time {
	if d > 0 && t > math.MaxInt64-Time(d) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// Sub returns how long it is from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Measure asks the kernel how long the machine has slept. Where the system has no such clock it returns 0.
func Measure() time.Duration {
	mu.Lock()
	defer mu.Unlock()
	var slept time.Duration
	var now time.Time
	// Two clocks can't be read at once; a pause in between looks like a short
	// sleep. A few tries find a reading without one.
	for range 5 {
		before := time.Now()
		if isSynctest(before) {
			return 0
		}
		boot, ok := Read()
		now = time.Now()
		if !ok {
			break
		}
		slept = boot - now.Sub(started)
		if now.Sub(before) < 100*time.Microsecond {
			break
		}
	}
	if r := last.Load(); r != nil && slept < r.slept+maxDrift { // not a sleep, but the pause between the two readings
		slept = r.slept
	}
	last.Store(&reading{slept: slept, ahead: wallAhead(now, now.Sub(started))})
	return slept
}

// Invalidate makes the next At ask the kernel, as a jump of the wall clock does. It is for
// tests that suspend the machine.
func Invalidate() {
	mu.Lock()
	defer mu.Unlock()
	if r := last.Load(); r != nil {
		last.Store(&reading{slept: r.slept, ahead: r.ahead + time.Hour})
	}
}

// isSynctest reports whether now comes from a bubble of testing/synctest, whose
// clock has no monotonic reading and stands still while the machine's runs on:
// the two must not be compared, nor what they yield be shared.
func isSynctest(now time.Time) bool { return now == now.Round(0) }

func wallAhead(now time.Time, awake time.Duration) time.Duration {
	return time.Duration(now.UnixNano()-base) - awake
}
