// Package bootclock measures time with a clock that nobody can set and that runs while the machine
// sleeps (suspend, hibernation). Go's monotonic clock stands still during a sleep.
package bootclock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Read returns the time since boot, including the machine's sleep. A test replaces it to suspend
// the machine.
var Read = ReadSystem

// Time is an instant, in nanoseconds: the time of the monotonic clock plus the time that the
// machine has slept. The zero Time has passed.
type Time int64

var (
	started = time.Now()
	base    = started.UnixNano() // so that a Time counts from 1970, also in a bubble, which has no monotonic clock
)

// reading is what was last known of the machine's sleep.
type reading struct {
	slept time.Duration // since boot; it only rises
	ahead time.Duration // how far the wall clock is ahead of the monotonic clock
}

var (
	mu   sync.Mutex // guards Measure
	last atomic.Pointer[reading]
)

// maxDrift is how far the wall clock and the monotonic clock may move apart before At asks the
// kernel. It is less than the margin of any deadline.
const maxDrift = time.Millisecond

// Now returns the present instant.
func Now() Time { return At(time.Now()) }

// At returns the instant at which now was read from the clock. To read the kernel's boot clock
// costs a system call. So At reads it only when the wall clock has moved against the monotonic
// clock since the last reading. It has after every sleep, because the kernel adds the time that the
// machine has slept both to the wall clock and to the boot clock.
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

// Add returns the instant d after t, or the last instant that a Time can express.
func (t Time) Add(d time.Duration) Time {
	if d > 0 && t > math.MaxInt64-Time(d) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// Sub returns how long it is from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Measure asks the kernel how long the machine has slept. It returns 0 if the system has no such
// clock.
func Measure() time.Duration {
	mu.Lock()
	defer mu.Unlock()
	var slept time.Duration
	var now time.Time
	// Two clocks can't be read at once, and a pause between the readings looks like a short sleep.
	// A few tries find a reading without a pause.
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
	if r := last.Load(); r != nil && slept < r.slept+maxDrift { // not a sleep, but a pause between the two readings
		slept = r.slept
	}
	last.Store(&reading{slept: slept, ahead: wallAhead(now, now.Sub(started))})
	return slept
}

// Invalidate makes the next At ask the kernel, as after a jump of the wall clock. It is for tests
// that suspend the machine.
func Invalidate() {
	mu.Lock()
	defer mu.Unlock()
	if r := last.Load(); r != nil {
		last.Store(&reading{slept: r.slept, ahead: r.ahead + time.Hour})
	}
}

// isSynctest reports whether now comes from a bubble of testing/synctest. The clock of a bubble has
// no monotonic reading, and stands still while the machine's clock runs. So the two must not be
// compared, and must not share a reading.
func isSynctest(now time.Time) bool { return now == now.Round(0) }

func wallAhead(now time.Time, awake time.Duration) time.Duration {
	return time.Duration(now.UnixNano()-base) - awake
}
