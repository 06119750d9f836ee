package backendtest

import (
	"context"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// First come, first served, over all goroutines of all processes.
var fair = []check{
	{name: "Order", needs: []Ability{FairLocks}, run: fairOrder, without: refusesKind(lock.Policy{Fair: true})},
	{name: "Exclusion", needs: []Ability{FairLocks}, run: fairExclusion},
	{name: "DeadWaiter", needs: []Ability{FairLocks}, run: fairDeadWaiter},
	{name: "GivesUp", needs: []Ability{FairLocks}, run: fairGivesUp},
	{name: "LostAnswer", needs: []Ability{FairLocks, NetworkFaults}, run: lostAnswer(inOrder)},
}

var inOrder = lock.Policy{Fair: true}

// The order of grants is the order of arrival, whose process it ever is.
func fairOrder(c *trial) {
	const waiters = 8
	lockers := []*kindLocker{c.kindLocker(), c.kindLocker(), c.kindLocker()}
	key := c.newKey()
	_, held := c.enter(lockers[0].Locker, c.kind(inOrder), key)
	var all []<-chan *lock.Hold
	for i := range waiters {
		all = append(all, c.begin(lockers[i*i%3], inOrder, key))
	}
	c.leave(held)
	for i, next := range all {
		h := c.comes("the next in line", next)
		for _, later := range all[i+1:] {
			if len(later) > 0 {
				c.Errorf("the %dth to arrive has the lock, and another that came later", i)
			}
		}
		c.leave(h)
	}
}

func fairExclusion(c *trial) { c.exclude(c.kind(inOrder)) }

// Who died in the queue is passed over within a second.
func fairDeadWaiter(c *trial) {
	dead, a, b, key := c.open(), c.kindLocker(), c.kindLocker(), c.newKey()
	_, held := c.enter(a.Locker, c.kind(inOrder), key)
	gone := dead.kindOf(key, c.long(), driver.Mode{Kind: driver.Fair})
	gone.Queue = true
	dead.refused(gone)
	next := c.begin(b, inOrder, key)
	c.waits("who comes after a dead waiter", next)
	begin := time.Now()
	c.leave(held)
	after := c.comes("who comes after a dead waiter", next)
	c.within("passing over a dead waiter", begin, time.Second)
	c.leave(after)
}

// Who gives up leaves the queue, and holds nobody up.
func fairGivesUp(c *trial) {
	a, b, d, key := c.kindLocker(), c.kindLocker(), c.kindLocker(), c.newKey()
	_, held := c.enter(a.Locker, c.kind(inOrder), key)
	ctx, cancel := context.WithCancel(c.bounded())
	gone := entering(ctx, b.Locker, c.kind(inOrder), key)
	for b.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	next := c.begin(d, inOrder, key)
	c.waits("who comes next", next)
	cancel()
	if e := <-gone; e.err == nil {
		c.Error("who gave up has got the lock")
	}
	time.Sleep(time.Second) // for its undo
	begin := time.Now()
	c.leave(held)
	after := c.comes("who comes next", next)
	c.within("the turn after one that gave up", begin, time.Second) // its place would last longer
	c.leave(after)
}

// lostAnswer has an acquire whose answer was lost leave nothing behind (CURATOR-335).
func lostAnswer(p lock.Policy) func(c *trial) {
	return func(c *trial) {
		l, faults := c.lockerFaulty()
		b, key := c.kindLocker(), c.newKey()
		_, held := c.enter(l, c.kind(p), key) // connections are there
		c.leave(held)
		faults.LoseReplies()
		ctx, cancel := context.WithTimeout(c.bounded(), 300*time.Millisecond)
		defer cancel()
		_, lostHold, err := l.Acquire(ctx, c.kind(p), key)
		if err == nil {
			c.Error("an acquire without an answer has got the lock")
			lostHold.Release(nil)
		}
		faults.Heal()
		c.leave(c.comes("another", c.begin(b, p, key)))
	}
}
