package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Deadline is the end of a lease or a session, as far as it was proved. Until End it only moves
// forward, because answers may come out of order. The zero Deadline has passed. Every call of the
// lock's holder may read it, so it takes no mutex.
type Deadline struct {
	until atomic.Int64 // ns after the zero Instant, or ended
}

const ended = math.MinInt64

// Get returns the deadline: the zero Instant once it has ended.
func (d *Deadline) Get() driver.Instant {
	until := d.until.Load()
	if until == ended {
		return driver.Instant{}
	}
	return driver.Instant{}.Add(time.Duration(until))
}

// Extend moves the deadline to until if that is later, and reports whether it did.
func (d *Deadline) Extend(until driver.Instant) bool {
	to := int64(until.Sub(driver.Instant{}))
	for from := d.until.Load(); from != ended && from < to; from = d.until.Load() {
		if d.until.CompareAndSwap(from, to) {
			return true
		}
	}
	return false
}

// Shorten moves the deadline to until, if that is earlier.
func (d *Deadline) Shorten(until driver.Instant) {
	to := int64(until.Sub(driver.Instant{}))
	for from := d.until.Load(); from > to && !d.until.CompareAndSwap(from, to); from = d.until.Load() {
	}
}

// End makes the deadline one that has passed. It can't be extended after that.
func (d *Deadline) End() { d.until.Store(ended) }

// Earlier returns the earlier of two instants.
func Earlier(a, b driver.Instant) driver.Instant {
	if b.Before(a) {
		return b
	}
	return a
}
