package engine

import (
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Deadline is the end of a lease or a session as far as it was proved. It moves
// forward only, because answers may come out of order, until End. The zero
// Deadline has passed.
type Deadline struct {
	until atomic.Pointer[driver.Instant]
	ended atomic.Bool
}

// Get returns the deadline: the zero Instant once it has ended.
func (d *Deadline) Get() driver.Instant {
	until := d.until.Load()
	if until == nil || d.ended.Load() {
		return driver.Instant{}
	}
	return *until
}

// Extend moves the deadline to until, if that is later.
func (d *Deadline) Extend(until driver.Instant) {
	for {
		old := d.until.Load()
		if old != nil && old.Left() >= until.Left() {
			return
		}
		if d.until.CompareAndSwap(old, &until) {
			return
		}
	}
}

// Shorten moves the deadline to until, if that is earlier.
func (d *Deadline) Shorten(until driver.Instant) {
	for {
		old := d.until.Load()
		if old == nil || old.Left() <= until.Left() {
			return
		}
		if d.until.CompareAndSwap(old, &until) {
			return
		}
	}
}

// End makes the deadline one that has passed, for good.
func (d *Deadline) End() { d.ended.Store(true) }

// Earlier returns the earlier of two instants, by what is left until each: the
// machine may have slept between the two.
func Earlier(a, b driver.Instant) driver.Instant {
	now := time.Now()
	if a.LeftAt(now) < b.LeftAt(now) {
		return a
	}
	return b
}
