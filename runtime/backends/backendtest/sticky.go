package backendtest

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// stickyLocks checks that a process keeps an idle lease, and gives it up when another process
// waits. A backend that can't recall an idle lease must refuse the policy before anything is taken.
func stickyLocks(c *trial) {
	p := &lock.Policy{TTL: c.long(), Sticky: c.long()}
	one, two, key := c.locker(), c.locker(), c.newKey()
	_, held, err := one.Acquire(c.bounded(), p, key)
	if errors.Is(err, lock.ErrInvalid) {
		c.mustAcquire(two, key, c.timeout(), "after a Sticky policy that was refused")
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
			c.Errorf("token %d after token %d", token, last)
		} else {
			last = token
		}
		c.leave(held)
	}
	for _, l := range []*lock.Locker{one, two, one, two} {
		begin := time.Now()
		cycle(l)
		c.within("an acquire of a key whose lease another process keeps idle", begin, c.timeout())
		for range 100 {
			cycle(l)
		}
		if kept := l.Snapshot().Idle; kept != 1 {
			c.Errorf("%d idle leases are kept after a release while nobody waits, want 1", kept)
		}
		_, held, err := c.locker().Acquire(c.bounded(), &lock.Policy{TTL: c.long(), Try: true}, key)
		if !errors.Is(err, lock.ErrNotAcquired) {
			c.Errorf("a Try on a key whose lease another process keeps idle: %v", err)
		}
		held.Release(nil)
	}
	_, held = c.enter(two, p, key)
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout())
	defer cancel()
	next := entering(ctx, one, p, key) // makes its first attempt while the key is held, or soon after
	c.leave(held)
	c.leave(c.entered(next).held)

	c.closeLocker(one)
	c.mustAcquire(two, key, c.timeout(), "after the Close of the Locker that kept the lease")
}
