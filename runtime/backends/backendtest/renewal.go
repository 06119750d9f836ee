package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A renewal extends a lease, and does nothing else.
var renewal = []check{
	{name: "KeepsTheLease", run: renewalKeeps},
	{name: "NeverShortens", run: renewalNeverShortens},
	{name: "AfterRelease", run: renewalAfterRelease},
	{name: "AfterExpiry", needs: []Ability{Lapse}, run: renewalAfterExpiry},
	{name: "AfterRemoval", needs: []Ability{Removal}, run: renewalAfterRemoval},
	{name: "BesideRelease", run: renewalBesideRelease},
	{name: "Batch", run: renewalBatch},
	{name: "Locker", run: lockerRenews},
	{name: "LockerHearsOfRemoval", needs: []Ability{Removal}, run: lockerHearsOfRemoval},
}

func renewalKeeps(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	ttl := c.steady()
	lease := a.takeFor(key, ttl)
	begin, err := time.Now(), error(nil)
	for ; err == nil && time.Since(begin) < ttl+c.over(); time.Sleep(ttl / 8) {
		if err = lease.Renew(c.bounded(), ttl); err == nil {
			err = b.outside(lease, key)
		}
	}
	if err == nil {
		err = lease.Release(c.bounded(), last(lease))
	}
	if err == nil {
		c.free(b.take(key))
	} else if lag := c.lag(begin); lag < ttl/2 || !errors.Is(err, lock.ErrLost) {
		c.Errorf("a lease that is renewed, after %v: %v (the machine was late by %v)", time.Since(begin), err, lag)
	}
}

// outside tries to take key, which l holds. It returns nil if that is refused. It returns ErrLost if
// the Deadline of l has passed meanwhile: then the holder knows that it may have lost the key.
func (cl *client) outside(l driver.Lease, key string) error {
	cl.c.Helper()
	next, err := cl.Acquire(cl.c.bounded(), cl.attempt(key))
	left := l.Deadline().Left()
	if next != nil {
		cl.c.released(next)
	}
	switch {
	case left <= 0:
		return lock.ErrLost
	case err == nil:
		return fmt.Errorf("another client took the key %v before the Deadline", left)
	case !isHeld(err):
		return fmt.Errorf("an acquire by another client: %w; it must be a *driver.HeldError", err)
	}
	return nil
}

// A renewal with a shorter ttl leaves the lease as it is, for its holder and at the engine.
func renewalNeverShortens(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	ttl := c.steady()
	begin := time.Now()
	lease := a.takeFor(key, ttl)
	before := lease.Deadline()
	if err := lease.Renew(c.bounded(), ttl/2); errors.Is(err, lock.ErrLost) {
		c.Fatalf("Renew of a lease that holds its key: %v", err)
	}
	if shorter := before.Sub(lease.Deadline()); shorter > time.Millisecond {
		c.Errorf("a renewal for %v moved the Deadline of a lease of %v back by %v", ttl/2, ttl, shorter)
	}
	time.Sleep(ttl*3/4 - time.Since(begin))
	if _, err := b.Acquire(c.bounded(), b.attempt(key)); err == nil && lease.Deadline().Left() > 0 {
		c.Errorf("after a renewal for %v the engine ended a lease of %v too early", ttl/2, ttl)
	}
	c.released(lease)
}

// A renewal after the release does not create the lease again.
func renewalAfterRelease(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.take(key)
	c.free(lease)
	c.lost("Renew after Release", lease.Renew(c.bounded(), c.long()))
	next := b.take(key)
	c.lost("Renew after another client took the key", lease.Renew(c.bounded(), c.long()))
	if err := next.Renew(c.bounded(), c.long()); err != nil {
		c.Errorf("Renew of the next holder's lease: %v", err)
	}
	c.free(next)
}

func renewalAfterExpiry(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.takeFor(key, c.h.TTL)
	time.Sleep(c.over() + overrun)
	c.lost("Renew after the lease ended", lease.Renew(c.bounded(), c.h.TTL))
	c.free(b.take(key))
}

func renewalAfterRemoval(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.take(key)
	c.h.Remove(c.T, key)
	c.lost("Renew of a lock that was deleted at the engine", lease.Renew(c.bounded(), c.long()))
	next := b.take(key)
	c.lost("Renew of a lock that another client has taken since", lease.Renew(c.bounded(), c.long()))
	a.held(key)
	c.free(next)
}

// Renewals that are under way when the lock is released do not create the lock again.
func renewalBesideRelease(c *trial) {
	a, b := c.open(), c.open()
	for range 10 {
		key := c.newKey()
		lease := a.take(key)
		var renewals sync.WaitGroup
		for range 4 {
			renewals.Go(func() {
				if err := lease.Renew(c.bounded(), c.long()); err != nil && !errors.Is(err, lock.ErrLost) {
					c.Errorf("Renew at the same time as Release: %v", err)
				}
			})
		}
		c.free(lease)
		renewals.Wait()
		c.free(b.take(key))
	}
}

// Leases that are renewed together each have their own result.
func renewalBatch(c *trial) {
	a, b := c.open(), c.open()
	renew := func(leases []driver.Lease, ttls []time.Duration) []error {
		if many, ok := a.Backend.(driver.BatchRenewer); ok {
			return many.RenewAll(c.bounded(), leases, ttls)
		}
		errs := make([]error, len(leases))
		for i, l := range leases {
			errs[i] = l.Renew(c.bounded(), ttls[i])
		}
		return errs
	}
	const n = 30
	var leases []driver.Lease
	var ttls []time.Duration
	var keys []string
	for i := range n {
		keys = append(keys, c.newKey())
		leases = append(leases, a.take(keys[i]))
		ttls = append(ttls, c.long())
	}
	gone := map[int]bool{0: true, 7: true, n - 1: true}
	for i := range gone {
		c.free(leases[i])
	}
	begin := time.Now()
	errs := renew(leases, ttls)
	if len(errs) != n {
		c.Fatalf("RenewAll of %d leases gave %d results", n, len(errs))
	}
	for i, err := range errs {
		switch {
		case gone[i]:
			c.lost("the renewal in a batch of a lease that was released", err)
		case err != nil:
			c.Errorf("the renewal of a lease in a batch: %v", err)
		case leases[i].Deadline().Left()+time.Since(begin) < c.long()*3/4:
			c.Errorf("a lease that was renewed in a batch has %v left of %v", leases[i].Deadline().Left(), c.long())
		}
	}
	for i, l := range leases {
		if gone[i] {
			c.free(b.take(keys[i]))
			continue
		}
		c.released(l)
	}
}

// A method keeps its lock for as long as it runs.
func lockerRenews(c *trial) {
	l, key := c.locker(), c.newKey()
	b := c.open()
	ttl := c.steady()
	ctx, held := c.enter(l, &lock.Policy{TTL: ttl}, key)
	begin := time.Now()
	for time.Since(begin) < ttl*3/2 && lock.Check(ctx) == nil {
		b.heldUnder(ctx, key)
		time.Sleep(ttl / 10)
	}
	c.leaveKept(ctx, begin, ttl, held)
}

// heldUnder requires that the method that runs under ctx holds key, or that its
// lock.Check reports the loss if another client gets the key.
func (cl *client) heldUnder(ctx context.Context, key string) {
	cl.c.Helper()
	lease, err := cl.Acquire(cl.c.bounded(), cl.attempt(key))
	switch {
	case isHeld(err):
	case err != nil:
		cl.c.Errorf("Acquire of a key that is held: %v; it must be a *driver.HeldError", err)
	case lock.Check(ctx) == nil:
		cl.c.Errorf("%q was taken while a method holds it, and the method's lock.Check succeeds", key)
	}
	if lease != nil {
		cl.c.released(lease)
	}
}

// The holder of a lock that was deleted learns this from the next renewal.
func lockerHearsOfRemoval(c *trial) {
	l, key := c.locker(), c.newKey()
	ctx, held := c.enter(l, c.shortPolicy(), key)
	asked := time.Now()
	c.h.Remove(c.T, key)
	begin := time.Now()
	c.ended(ctx)
	c.within(fmt.Sprintf("the end of the context after a removal that took %v", begin.Sub(asked)), begin, c.h.TTL/2+overrun)
	c.lost("what the wrapper returns", finish(held))
	err := c.locker().Do(c.bounded(), c.policy(), key, func(context.Context) error { return nil })
	if err != nil {
		c.Errorf("Do of the next holder: %v", err)
	}
}
