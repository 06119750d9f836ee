package driver

import (
	"time"

	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

// Instant is a point in time on the clocks by which leases are measured: the monotonic clock, which
// no one can set, and the time that the machine has slept (suspend, hibernation), which the
// monotonic clock does not count and a server's clock does. A lease is over when either says so.
// The zero Instant has passed.
type Instant struct{ at bootclock.Time }

// Now returns the present instant. It costs one reading of the clock.
func Now() Instant { return At(time.Now()) }

// At is Now for a caller that has just read the clock.
func At(now time.Time) Instant { return Instant{bootclock.At(now)} }

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.at.Add(d)} }

// Sub returns how long it is from j to i.
func (i Instant) Sub(j Instant) time.Duration { return i.at.Sub(j.at) }

// Before reports whether i comes before j.
func (i Instant) Before(j Instant) bool { return i.at < j.at }

// Left returns how long it is from now until i: zero or less once i has
// passed, on either clock.
func (i Instant) Left() time.Duration { return i.LeftAt(time.Now()) }

// LeftAt is Left for a caller that has just read the clock.
func (i Instant) LeftAt(now time.Time) time.Duration { return i.at.Sub(bootclock.At(now)) }
