package driver

import (
	"time"

	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

// Instant is a point in time on the clocks that leases are measured by: the
// monotonic clock, which no one can set, and how long the machine has slept
// (suspend, hibernation), which the monotonic clock leaves out and a server's
// clock does not. A lease is over when either says so.
type Instant struct {
	at    time.Time     // its monotonic reading counts
	slept time.Duration // by the machine since boot, as known when it was stamped
}

// Now returns the present instant. It costs one reading of the clock.
func Now() Instant { return At(time.Now()) }

// At is Now for a caller that has just read the clock.
func At(now time.Time) Instant { return Instant{at: now, slept: bootclock.Slept(now)} }

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{at: i.at.Add(d), slept: i.slept}
}

// Left returns how long it is from now until i: zero or less once i has
// passed, on either clock.
func (i Instant) Left() time.Duration { return i.LeftAt(time.Now()) }

// LeftAt is Left for a caller that has just read the clock.
func (i Instant) LeftAt(now time.Time) time.Duration {
	left := i.at.Sub(now)
	if left <= 0 { // also the zero Instant, from which no sleep can be subtracted
		return left
	}
	return left - max(0, bootclock.Slept(now)-i.slept)
}

// LeftMeasured is Left by a fresh reading of the boot clock, which is a system
// call: for a caller that must be right at this very instant.
func (i Instant) LeftMeasured() time.Duration {
	left := time.Until(i.at)
	if left <= 0 {
		return left
	}
	return left - max(0, bootclock.Measure()-i.slept)
}
