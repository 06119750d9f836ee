package lock

import (
	"sync/atomic"
	"time"
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
func Now() Instant {
	now := time.Now()
	return Instant{at: now, slept: machine.slept(now)}
}

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{at: i.at.Add(d), slept: i.slept}
}

// Left returns how long it is from now until i: zero or less once i has
// passed, on either clock.
func (i Instant) Left() time.Duration { return i.leftAt(time.Now()) }

// leftAt is Left for a caller that has just read the clock.
func (i Instant) leftAt(now time.Time) time.Duration {
	left := i.at.Sub(now)
	if left <= 0 { // also the zero Instant, from which no sleep can be subtracted
		return left
	}
	return left - max(0, machine.slept(now)-i.slept)
}

// leftMeasured is Left by a measurement of the machine's sleep, for the
// callers that must be right at this very instant.
func (i Instant) leftMeasured() time.Duration {
	left := time.Until(i.at)
	if left <= 0 {
		return left
	}
	return left - max(0, machine.measure()-i.slept)
}

// sleepClock knows how long the machine has slept since boot. Asking the
// kernel costs several readings of Go's clock, so slept asks only when wall
// clock and monotonic clock have moved apart since it last did, as they do
// over every sleep.
type sleepClock struct {
	boottime func() (time.Duration, bool) // a field, so that a test can suspend the machine
	last     atomic.Pointer[sleepReading]
}

type sleepReading struct {
	slept time.Duration
	ahead time.Duration // of the wall clock over the monotonic clock
}

var (
	machine = &sleepClock{boottime: readBoottime}
	started = time.Now()
)

// apart is how far wall and monotonic clock may drift before slept asks the
// kernel. A shorter sleep is found by measure alone.
const apart = 50 * time.Millisecond

func (s *sleepClock) slept(now time.Time) time.Duration {
	if isFake(now) {
		return 0
	}
	r := s.last.Load()
	if r == nil || absolute(wallAhead(now)-r.ahead) > apart {
		return s.measure()
	}
	return r.slept
}

// measure asks the kernel. Where the system has no such clock it returns 0.
func (s *sleepClock) measure() time.Duration {
	var slept time.Duration
	var now time.Time
	// Two clocks can't be read at once; a pause in between looks like a short
	// sleep. A few tries find a reading without one.
	for range 5 {
		before := time.Now()
		if isFake(before) {
			return 0
		}
		boot, ok := s.boottime()
		now = time.Now()
		if !ok {
			break
		}
		slept = boot - now.Sub(started)
		if now.Sub(before) < 100*time.Microsecond {
			break
		}
	}
	r := s.last.Load()
	if r != nil && absolute(slept-r.slept) < time.Millisecond && absolute(wallAhead(now)-r.ahead) <= apart {
		return r.slept
	}
	s.last.Store(&sleepReading{slept: slept, ahead: wallAhead(now)})
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
