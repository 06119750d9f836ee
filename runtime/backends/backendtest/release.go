package backendtest

import (
	"context"
	"runtime"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// A release frees the lock of its own lease and nothing else.
var release = []check{
	{name: "Twice", run: releaseTwice},
	{name: "Successor", run: releaseAfterSuccessor},
	{name: "Removed", needs: []Ability{Removal}, run: releaseRemoved},
	{name: "AfterExpiry", needs: []Ability{Lapse}, run: releaseAfterExpiry},
	{name: "LockerLoss", needs: []Ability{Removal}, run: lockerReleaseRemoved},
	{name: "CancelledMethod", run: releaseUnderCancelledContext},
	{name: "Panic", run: releaseAfterPanic},
	{name: "Reentry", run: reentry},
}

// A second release changes nothing.
func releaseTwice(c *trial) {
	a := c.open()
	key := c.newKey()
	lease := a.take(key)
	c.free(lease)
	if err := lease.Release(c.bounded(), last(lease)); err != nil {
		c.lost("a second Release", err)
	}
	c.free(a.take(key))
}

// A late or repeated release does not free the next holder's lock, even if that is the same client.
func releaseAfterSuccessor(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	old := a.take(key)
	c.free(old)
	for _, next := range []*client{b, a} {
		lease := next.take(key)
		c.lost("Release after another acquisition took the key", old.Release(c.bounded(), last(old)))
		b.held(key)
		c.free(lease)
	}
}

// A lock that anybody deleted at the engine is lost.
func releaseRemoved(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.take(key)
	c.h.Remove(c.T, key)
	c.lost("Release of a lock that was deleted at the engine", lease.Release(c.bounded(), last(lease)))
	lease = a.take(key)
	c.h.Remove(c.T, key)
	next := b.take(key)
	c.lost("Release of a lock that another client has taken since", lease.Release(c.bounded(), last(lease)))
	a.held(key)
	c.free(next)
}

// A lease that ended before its release is lost, and the release frees no other lease.
func releaseAfterExpiry(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	old := a.takeFor(key, c.h.TTL)
	next := b.eventually(key)
	c.lost("Release after the lease ended", old.Release(c.bounded(), last(old)))
	a.held(key)
	c.free(next)
}

// A caller whose lock was deleted while its method ran gets ErrLost.
func lockerReleaseRemoved(c *trial) {
	l, key := c.locker(), c.newKey()
	err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error {
		c.h.Remove(c.T, key)
		return nil
	})
	c.lost("Do, whose lock was deleted meanwhile,", err)
	c.mustAcquire(l, key, pollLimit, "after the loss")
}

// If the caller's context ends before the method returns, the lock is released
// anyway, and Do returns the method's success.
func releaseUnderCancelledContext(c *trial) {
	l, key := c.locker(), c.newKey()
	ctx, cancel := context.WithCancel(c.bounded())
	defer cancel()
	err := l.Do(ctx, c.policy(), key, func(context.Context) error {
		cancel()
		return nil
	})
	if err != nil {
		c.Errorf("Do, cancelled at the end of its method: %v", err)
	}
	c.mustAcquire(c.locker(), key, pollLimit, "after a method whose context was cancelled")
}

// A panic or a Goexit in the method releases the lock, and Do does not stop it.
func releaseAfterPanic(c *trial) {
	l, key := c.locker(), c.newKey()
	func() {
		defer func() {
			if p := recover(); p != "the method's" {
				c.Errorf("the panic's value became %v", p)
			}
		}()
		err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error { panic("the method's") })
		c.Errorf("the method's panic was stopped: %v", err)
	}()
	c.mustAcquire(c.locker(), key, pollLimit, "after a panic")
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error { runtime.Goexit(); return nil })
		c.Errorf("the method's Goexit was stopped: %v", err)
	}()
	receive(c, "the goroutine to end", done)
	c.mustAcquire(c.locker(), key, pollLimit, "after a Goexit")
}

// A nested reentrant call gets the lock at once, with the same token. After its release the outer
// call still holds the lock. A nested call without Reentrant gets ErrDeadlock, because it would wait
// for itself forever.
func reentry(c *trial) {
	l, b, key := c.locker(), c.open(), c.newKey()
	again := &lock.Policy{TTL: c.h.TTL, Reentrant: true}
	ctx, held := c.enter(l, c.policy(), key)
	outer, _ := lock.Token(ctx)
	begin := time.Now()
	err := l.Do(ctx, again, key, func(ctx context.Context) error {
		if token, _ := lock.Token(ctx); token != outer {
			c.Errorf("the token of a re-entry is %d, want %d", token, outer)
		}
		return l.Do(ctx, again, key, func(context.Context) error { return nil })
	})
	if err != nil {
		c.Errorf("a re-entry: %v", err)
	}
	c.is("a nested call that is not reentrant", l.Do(ctx, c.policy(), key, func(context.Context) error { return nil }), lock.ErrDeadlock)
	c.within("two re-entries and a refusal, which need no engine", begin, 50*time.Millisecond)
	b.held(key)
	c.leave(held)
	c.free(b.take(key))
}
