package backendtest

import (
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Undo frees what its acquisition took and nothing else, once and again.
func undoFrees(c *trial) {
	a, b := c.open(), c.open()
	key, other := c.newKey(), c.newKey()
	attempt := a.attempt(key)
	lease := a.get(attempt)
	beside := a.take(other)
	a.undone(a.attempt(key))
	b.undone(b.attempt(key))
	foreign := *attempt
	foreign.Key = other
	a.undone(&foreign)
	b.held(key)
	b.held(other)
	a.undone(attempt)
	next := b.take(key)
	a.undone(attempt)
	c.lost("Renew of what was undone", lease.Renew(c.bounded(), c.long()))
	c.lost("Release of what was undone, after another took the key", lease.Release(c.bounded(), last(lease)))
	a.held(key)
	c.free(next)
	c.free(beside)
}

// A Locker undoes an acquisition of its that gave up waiting while its next one
// competes, which has the same place in the engine's queue. The undoing that comes
// last frees nothing of the next one's.
func undoAfterNext(c *trial) {
	for _, unanswered := range []bool{false, true} {
		for _, waits := range []bool{false, true} { // the next one, or it comes once the key is free
			a, b := c.open(), c.open()
			key := c.newKey()
			holder := b.take(key)
			one, two := a.attempt(key), a.attempt(key)
			one.Queue, two.Queue = true, true
			a.refused(one)
			if waits {
				a.refused(two)
			}
			c.free(holder)
			lease := a.getSoon(two)
			undo := *one
			undo.Queue, undo.MayHaveRun = false, unanswered
			a.undone(&undo)
			b.held(key)
			if err := lease.Renew(c.bounded(), c.long()); err != nil {
				c.Errorf("Renew, after an earlier acquisition of the Locker was undone (unanswered: %v, the next waited: %v): %v", unanswered, waits, err)
			}
			b.held(key)
			c.free(lease)
			b.takeAndFree(key, "the release")
		}
	}
}

// The same where the undoing gives up the place, which nobody wanted as it began.
func undoBesideNext(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	for i := range 20 {
		holder := b.take(key)
		one, two := a.attempt(key), a.attempt(key)
		one.Queue, two.Queue = true, true
		a.refused(one)
		if i%2 == 0 {
			c.free(holder)
		}
		undone := make(chan error, 1)
		undo := *one
		undo.MayHaveRun = i%4 < 2
		go func() { undone <- a.Undo(c.bounded(), &undo) }()
		if i%2 != 0 {
			c.free(holder)
		}
		lease := a.getSoon(two)
		if err := receive(c, "Undo", undone); err != nil {
			c.Errorf("Undo of an acquisition that gave up, beside the next one: %v", err)
		}
		b.held(key)
		if err := lease.Renew(c.bounded(), c.long()); err != nil {
			c.Errorf("Renew, after an earlier acquisition of the Locker was undone beside: %v", err)
		}
		c.free(lease)
	}
	b.takeAndFree(key, "the release")
}

// One that does not wait leaves no place behind, not even one that it found, of one
// that has given up meanwhile.
func undoAfterTry(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	for range 3 {
		holder := b.take(key)
		waiter := a.attempt(key)
		waiter.Queue = true
		a.refused(waiter)
		a.held(key) // by a try
		a.undone(waiter)
		c.free(holder)
		b.takeAndFree(key, "the last one that waited was undone")
	}
}

// getSoon acquires a, whose key may be kept for it for a moment yet.
func (cl *client) getSoon(a *driver.Acquisition) driver.Lease {
	cl.c.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lease, err := cl.Acquire(cl.c.bounded(), a)
		switch {
		case err == nil:
			return lease
		case !isHeld(err) || time.Since(begin) > cl.c.soon():
			cl.c.Fatalf("Acquire of %q, which is free: %v", a.Key, err)
		}
	}
}
