package engine

import (
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Deadline is the end of a lease or a session as far as it was proved. It moves
// forward only, because answers may come out of order, until End. The zero
// Deadline has passed.
type Deadline struct {
	mu    sync.Mutex
	until driver.Instant
	ended bool
}

// Get returns the deadline: the zero Instant once it has ended.
func (d *Deadline) Get() driver.Instant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until
}

// Extend moves the deadline to until if that is later, and reports whether it is.
func (d *Deadline) Extend(until driver.Instant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	later := !d.ended && d.until.Before(until)
	if later {
		d.until = until
	}
	return later
}

// Shorten moves the deadline to until, if that is earlier.
func (d *Deadline) Shorten(until driver.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until.Before(d.until) {
		d.until = until
	}
}

// End makes the deadline one that has passed, for good.
func (d *Deadline) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.ended = driver.Instant{}, true
}

// Earlier returns the earlier of two instants.
func Earlier(a, b driver.Instant) driver.Instant {
	if b.Before(a) {
		return b
	}
	return a
}
