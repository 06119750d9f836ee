package backendtest

import (
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Undo frees what its acquisition took and nothing else, even if it is repeated.
func undoFrees(c *trial) {
	a, b := c.open(), c.open()
	key, other := c.newKey(), c.newKey()
	attempt := a.attempt(key)
	lease := a.get(attempt)
	otherLease := a.take(other)
	a.undone(a.attempt(key))
	b.undone(b.attempt(key))
	wrongKey := *attempt
	wrongKey.Key = other
	a.undone(&wrongKey)
	b.held(key)
	b.held(other)
	a.undone(attempt)
	next := b.take(key)
	a.undone(attempt)
	c.lost("Renew of a lease that was undone", lease.Renew(c.bounded(), c.long()))
	c.lost("Release of a lease that was undone, after another client took the key", lease.Release(c.bounded(), last(lease)))
	a.held(key)
	c.free(next)
	c.free(otherLease)
}

// A Locker undoes an acquisition that gave up waiting, while its next acquisition of the key is
// under way. Both have the same place in the engine's queue. A late undo of the first
// one frees nothing of the next one.
func undoAfterNext(c *trial) {
	for _, unanswered := range []bool{false, true} {
		for _, waits := range []bool{false, true} { // whether the next acquisition waits, or begins when the key is free
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

// The same if the undo gives up the place too, because no other acquisition wanted it when the
// undo began.
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
			c.Errorf("Undo of an acquisition that gave up, while the next one is under way: %v", err)
		}
		b.held(key)
		if err := lease.Renew(c.bounded(), c.long()); err != nil {
			c.Errorf("Renew, after an earlier acquisition of the Locker was undone at the same time: %v", err)
		}
		c.free(lease)
	}
	b.takeAndFree(key, "the release")
}

// A try leaves no place in the queue. That holds even if it found the place of a waiting acquisition,
// which has given up meanwhile.
func undoAfterTry(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	for range 3 {
		holder := b.take(key)
		waiter := a.attempt(key)
		waiter.Queue = true
		a.refused(waiter)
		a.held(key) // a try
		a.undone(waiter)
		c.free(holder)
		b.takeAndFree(key, "the last waiting acquisition was undone")
	}
}

// getSoon acquires a. The engine may still reserve the key for an earlier waiter for a moment.
func (cl *client) getSoon(a *driver.Acquisition) driver.Lease {
	cl.c.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lease, err := cl.Acquire(cl.c.bounded(), a)
		switch {
		case err == nil:
			return lease
		case !isHeld(err) || time.Since(begin) > cl.c.timeout():
			cl.c.Fatalf("Acquire of %q, which is free: %v", a.Key, err)
		}
	}
}
