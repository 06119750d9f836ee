package backendtest

import (
	"context"
	"errors"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that waits gets the lock soon after it is free. A call that gave up delays nobody.
var waiting = []check{
	{name: "Notice", needs: []Ability{WakeUp}, run: notice, without: noNotifier},
	{name: "WakeUp", needs: []Ability{WakeUp}, run: wakesUp, without: pollsSoon},
	{name: "AllAreServed", run: allAreServed},
	{name: "Wait", run: waitEnds},
	{name: "WhoGaveUp", run: gaveUpInLine},
	{name: "DeadWaiter", needs: []Ability{NetworkFaults}, run: deadWaiter},
	{name: "DeadHolder", needs: []Ability{NetworkFaults}, run: deadHolder},
	{name: "Cuts", needs: []Ability{NetworkFaults}, run: waitsOverCuts},
}

// wakeUp is the longest time that a notice may take. It is far below pollLimit, and far above a
// round trip.
const wakeUp = 500 * time.Millisecond

// An active subscription gets a notice of a release.
func notice(c *trial) {
	a, b := c.open(), c.open()
	n, ok := b.Backend.(driver.Notifier)
	if !ok {
		c.Fatal("the Backend does not implement driver.Notifier; if its engine can't notify of a release, declare it in Cannot[WakeUp]")
	}
	for range 3 {
		key := c.newKey()
		lease := a.take(key)
		attempt := b.attempt(key)
		attempt.Queue = true
		b.refused(attempt)
		begin := time.Now()
		s, err := n.Subscribe(c.bounded(), attempt)
		for ; err != nil; s, err = n.Subscribe(c.bounded(), attempt) { // no answer in time: a Locker tries again
			if time.Since(begin) > c.timeout() {
				c.Fatalf("Subscribe: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		b.refused(attempt)
		for len(s.C()) > 0 { // an unnecessary notice is allowed
			<-s.C()
		}
		begin = time.Now()
		c.free(lease)
		receive(c, "a notice of the release", s.C())
		c.within("the notice", begin, wakeUp)
		c.free(b.get(attempt))
		s.Close()
		attempt.Queue = true
		b.undone(attempt)
	}
}

// noNotifier checks that a Backend that can't notify does not let anybody subscribe.
func noNotifier(c *trial) {
	b := c.open()
	n, ok := b.Backend.(driver.Notifier)
	if !ok {
		return
	}
	if _, err := n.Subscribe(c.bounded(), b.attempt(c.newKey())); err == nil {
		c.Error("the harness says that the Backend can't wake a waiter, but Subscribe works")
	}
}

func wakesUp(c *trial)   { c.wakesWithin(wakeUp) }
func pollsSoon(c *trial) { c.wakesWithin(pollLimit + overrun) }

// wakesWithin has one Locker wait for another. The lease is long, so that its end does
// not wake the waiter, and the release comes long before the next poll. However busy
// the machine is, one of the measured times must be within the limit.
func (c *trial) wakesWithin(limit time.Duration) {
	c.Helper()
	a, b := c.locker(), c.locker()
	for _, l := range []*lock.Locker{a, b} {
		c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	}
	least := time.Hour
	for range 4 {
		key := c.newKey()
		_, held := c.enter(a, c.policy(), key)
		next := entering(c.bounded(), b, c.policy(), key)
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		c.leave(held)
		e := c.entered(next)
		c.within("waking up after a release", begin, limit)
		least = min(least, e.at.Sub(begin))
		c.leave(e.held)
	}
	if least > limit {
		c.Errorf("waking up after a release took %v or more each time; at most %v is right", least, limit)
	}
}

// Many calls wait in several processes, and each of them gets the lock.
func allAreServed(c *trial) {
	const lockers, goroutines = 4, 2
	key := c.newKey()
	_, held := c.enter(c.locker(), c.policy(), key)
	var waiters [lockers]*lock.Locker
	for i := range waiters {
		waiters[i] = c.locker()
		c.mustAcquire(waiters[i], c.newKey(), c.timeout(), "when the Locker connects")
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, l := range waiters {
		for range goroutines {
			all.Go(func() {
				begin := time.Now()
				err := l.Do(c.contended(), c.policy(), key, func(context.Context) error { return nil })
				c.done(begin, err)
			})
		}
	}
	time.Sleep(100 * time.Millisecond)
	c.leave(held)
	all.Wait()
	limit := lockers * goroutines * wakeUp / 2
	if _, polls := c.h.Cannot[WakeUp]; polls {
		limit = lockers * goroutines * pollLimit
	}
	c.within("serving all waiters", begin, limit)
}

// A wait ends when the policy or the caller says so. A try does not wait.
func waitEnds(c *trial) {
	l, key := c.locker(), c.newKey()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	b := c.open()
	lease := b.get(b.attempt(key))
	begin := time.Now()
	_, _, err := l.Acquire(c.bounded(), &lock.Policy{TTL: c.h.TTL, Try: true}, key)
	c.within("a try", begin, 2*overrun)
	c.is("a try on a key that is held", err, lock.ErrNotAcquired)
	c.refuses("an acquire whose wait is over", func(wait time.Duration) error {
		_, _, err := l.Acquire(c.bounded(), &lock.Policy{TTL: c.h.TTL, Wait: wait}, key)
		return err
	})
	c.refuses("an acquire whose context ended", func(wait time.Duration) error {
		ctx, cancel := brief(wait)
		defer cancel()
		_, _, err := l.Acquire(ctx, c.policy(), key)
		c.is("an acquire whose context ended", err, context.DeadlineExceeded)
		return err
	})
	c.free(lease)
}

// refuses requires that acquire, of a key that is held, ends in time with ErrNotAcquired.
// An acquire that ends while its first attempt is under way can't know that the key is held.
// Then refuses tries again and waits twice as long.
func (c *trial) refuses(what string, acquire func(wait time.Duration) error) {
	c.Helper()
	var err error
	for wait := 150 * time.Millisecond; wait < c.timeout(); wait *= 2 {
		begin := time.Now()
		err = acquire(wait)
		c.within(what, begin, wait+2*overrun)
		if !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrIndeterminate) {
			break
		}
	}
	c.is(what, err, lock.ErrNotAcquired)
}

// A waiter that gave up delays nobody: its place is given up too.
func gaveUpInLine(c *trial) {
	holder, quitter, next := c.locker(), c.locker(), c.locker()
	key := c.newKey()
	_, held := c.enter(holder, c.policy(), key)
	ctx, cancel := context.WithCancel(c.bounded())
	gone := entering(ctx, quitter, c.policy(), key)
	time.Sleep(100 * time.Millisecond)
	waiter := entering(c.bounded(), next, c.policy(), key)
	time.Sleep(100 * time.Millisecond)
	cancel()
	e := receive(c, "the waiter that gave up", gone)
	c.is("an acquire that was cancelled", e.err, context.Canceled)
	time.Sleep(100 * time.Millisecond) // its place is given up in the background
	begin := time.Now()
	c.leave(held)
	c.leave(c.entered(waiter).held)
	limit := wakeUp
	if _, polls := c.h.Cannot[WakeUp]; polls {
		limit = pollLimit + overrun
	}
	c.within("the next waiter's acquire", begin, limit)
}

// A process that died while it waited delays those behind it by no more than the length of its
// session, or of its turn.
func deadWaiter(c *trial) {
	holder, next := c.locker(), c.locker()
	dying, faults := c.lockerFaulty()
	key := c.newKey()
	_, held := c.enter(holder, c.policy(), key)
	ctx, cancel := context.WithCancel(c.bounded())
	defer cancel()
	dead := entering(ctx, dying, c.shortPolicy(), key)
	time.Sleep(150 * time.Millisecond)
	faults.Silence()
	waiter := entering(c.bounded(), next, c.shortPolicy(), key)
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	c.leave(held)
	c.leave(c.entered(waiter).held)
	c.within("the acquire of the waiter behind a dead process", begin, c.over()+pollLimit+wakeUp)
	cancel()
	faults.Heal()
	if e := receive(c, "the waiter that was cut off", dead); e.held != nil {
		c.leave(e.held)
	}
}

// The lock of a process that died goes to the waiter when the lease ends.
func deadHolder(c *trial) {
	dying, faults := c.lockerFaulty()
	key := c.newKey()
	ctx, held := c.enter(dying, c.shortPolicy(), key)
	waiter := entering(c.bounded(), c.locker(), c.shortPolicy(), key)
	time.Sleep(c.h.TTL / 4)
	faults.Silence()
	begin := time.Now()
	e := c.entered(waiter)
	c.lost("lock.Check of the holder, when the waiter got the lock", lock.Check(ctx))
	c.ended(ctx)
	c.within("the waiter's acquire", begin, c.over()+pollLimit+overrun)
	c.leave(e.held)
	faults.Heal()
	c.lost("what the wrapper returns", finish(held))
}

// A waiter whose connections were cut connects again, and gets the lock.
func waitsOverCuts(c *trial) {
	l, faults := c.lockerFaulty()
	holder, key := c.locker(), c.newKey()
	_, held := c.enter(holder, c.policy(), key)
	waiter := entering(c.bounded(), l, c.policy(), key)
	time.Sleep(100 * time.Millisecond)
	faults.LoseReplies()
	time.Sleep(50 * time.Millisecond)
	faults.Heal()
	time.Sleep(50 * time.Millisecond)
	c.leave(held)
	e := receive(c, "the waiter whose connections were cut", waiter)
	if e.err == nil {
		c.leave(e.held)
		return
	}
	// The engine may not have answered for so long that the call failed. Then the error
	// must say so, and the call must leave nothing behind.
	if !isUnanswered(e.err) {
		c.Errorf("an acquire whose connections were cut: %v; it must wrap ErrUnavailable or ErrIndeterminate", e.err)
	}
	c.mustAcquire(c.locker(), key, 3*pollLimit, "after an acquire whose connections were cut")
}
