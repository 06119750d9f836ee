package backendtest

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// stickyLocks has a process keep a lock that it does not use, and give it to another that
// waits. A backend that can't tell who waits must refuse before anything is taken.
func stickyLocks(c *trial) {
	p := &lock.Policy{TTL: c.long(), Sticky: c.long()}
	one, two, key := c.locker(), c.locker(), c.newKey()
	_, held, err := one.Acquire(c.bounded(), p, key)
	if errors.Is(err, lock.ErrInvalid) {
		c.passesBy(two, key, c.soon(), "after a Sticky policy that was refused")
		return
	}
	if err != nil {
		c.Fatalf("acquire with Sticky: %v", err)
	}
	c.leave(held)
	var last uint64
	cycle := func(l *lock.Locker) {
		ctx, held := c.enter(l, p, key)
		if token, _ := lock.Token(ctx); token <= last {
			c.Errorf("token %d after %d", token, last)
		} else {
			last = token
		}
		c.leave(held)
	}
	for _, l := range []*lock.Locker{one, two, one, two} {
		begin := time.Now()
		cycle(l)
		c.within("an acquire of what another process keeps idle", begin, c.soon())
		for range 100 {
			cycle(l)
		}
		if kept := l.Snapshot().Idle; kept != 1 {
			c.Errorf("%d leases are kept after a release that nobody waits for", kept)
		}
		_, held, err := c.locker().Acquire(c.bounded(), &lock.Policy{TTL: c.long(), Try: true}, key)
		if !errors.Is(err, lock.ErrNotAcquired) {
			c.Errorf("a Try of what another process keeps: %v", err)
		}
		held.Release(nil)
	}
	_, held = c.enter(two, p, key)
	ctx, cancel := context.WithTimeout(context.Background(), c.soon())
	defer cancel()
	next := entering(ctx, one, p, key) // asks while it is held, or soon after
	c.leave(held)
	c.leave(c.entered(next).held)

	c.closeLocker(one)
	c.passesBy(two, key, c.soon(), "after the Close of who kept it")
}
