// Package bootclock tells how long the machine has slept since boot: the time of
// suspend and hibernation, which Go's monotonic clock leaves out.
package bootclock

import (
	"sync/atomic"
	"time"
)

// Read returns the time since boot with the machine's sleep. A test replaces it
// to suspend the machine.
var Read = ReadSystem

type reading struct {
	slept time.Duration
	ahead time.Duration // of the wall clock over the monotonic clock
}

var (
	last    atomic.Pointer[reading]
	started = time.Now()
)

// apart is how far wall and monotonic clock may drift before Slept asks the
// kernel. A shorter sleep is found by Measure alone.
const apart = 50 * time.Millisecond

// Slept returns how long the machine has slept, as known at now. Asking the kernel
// costs several readings of Go's clock, so it asks only when wall clock and
// monotonic clock have moved apart since it last did, as they do over every sleep.
func Slept(now time.Time) time.Duration {
	if isFake(now) {
		return 0
	}
	r := last.Load()
	if r == nil || absolute(wallAhead(now)-r.ahead) > apart {
		return Measure()
	}
	return r.slept
}

// Measure asks the kernel how long the machine has slept. Where the system has no such clock it returns 0.
func Measure() time.Duration {
	var slept time.Duration
	var now time.Time
	// Two clocks can't be read at once; a pause in between looks like a short
	// sleep. A few tries find a reading without one.
	for range 5 {
		before := time.Now()
		if isFake(before) {
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
	r := last.Load()
	if r != nil && absolute(slept-r.slept) < time.Millisecond && absolute(wallAhead(now)-r.ahead) <= apart {
		return r.slept
	}
	last.Store(&reading{slept: slept, ahead: wallAhead(now)})
	return slept
}

// isFake reports whether now comes from a bubble of testing/synctest, whose
// clock has no monotonic reading and stands still while the machine's runs on:
// the two must not be compared, nor what they yield be shared.
func isFake(now time.Time) bool { return now == now.Round(0) }

func wallAhead(now time.Time) time.Duration {
	return time.Duration(now.UnixNano()-started.UnixNano()) - now.Sub(started)
}

func absolute(d time.Duration) time.Duration { return max(d, -d) }
