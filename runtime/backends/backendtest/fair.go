package backendtest

import (
	"context"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// First come, first served, across all goroutines of all processes.
var fair = []check{
	{name: "Order", needs: []Ability{FairLocks}, run: fairOrder, without: refusesKind(lock.Policy{Fair: true})},
	{name: "Exclusion", needs: []Ability{FairLocks}, run: fairExclusion},
	{name: "DeadWaiter", needs: []Ability{FairLocks}, run: fairDeadWaiter},
	{name: "GivesUp", needs: []Ability{FairLocks}, run: fairGivesUp},
	{name: "LostAnswer", needs: []Ability{FairLocks, NetworkFaults}, run: lostAnswer(inOrder)},
}

var inOrder = lock.Policy{Fair: true}

// The order of grants is the order of arrival, across all processes.
func fairOrder(c *trial) {
	const waiters = 8
	lockers := []*kindLocker{c.kindLocker(), c.kindLocker(), c.kindLocker()}
	key := c.newKey()
	_, held := c.enter(lockers[0].Locker, c.kind(inOrder), key)
	begin := time.Now()
	var all []<-chan *lock.Hold
	var queue []int
	for i := range waiters {
		all, queue = append(all, c.begin(lockers[i*i%3], inOrder, key)), append(queue, i)
	}
	handed := time.Now()
	c.leave(held)
	for range all {
		next, h := c.oneOf(all)
		for ; queue[0] != next; queue = append(queue[1:], queue[0]) {
			// A waiter that is late by more than its brief lease has lost its turn, and is in the queue again.
			if after := time.Since(handed); after < briefLease && !c.mayLosePlace(begin) {
				c.Errorf("the lock went to waiter %d, not to waiter %d, after %v", next, queue[0], after)
			}
		}
		all[next], queue = nil, queue[1:]
		for j, other := range all {
			if len(other) > 0 && !isLost(h) {
				c.Errorf("waiters %d and %d have the lock at the same time", next, j)
			}
		}
		handed = time.Now()
		c.leave(h)
	}
}

// mayLosePlace reports whether a call that has been in the queue since begin may have lost its place.
// That happens if the call has made no attempt for 2.5 s, although it makes one each second.
func (c *trial) mayLosePlace(begin time.Time) bool {
	const lasts = 2500 * time.Millisecond
	return time.Since(begin) >= lasts && c.lag(begin) >= lasts-pollLimit
}

// oneOf returns the hold that is granted first, and its index.
func (c *trial) oneOf(all []<-chan *lock.Hold) (int, *lock.Hold) {
	c.Helper()
	for begin := time.Now(); time.Since(begin) < c.timeout(); time.Sleep(time.Millisecond) {
		for i, held := range all {
			if len(held) > 0 {
				return i, c.comes("the next call in the queue", held)
			}
		}
	}
	c.Fatal("no call in the queue has got the lock")
	return 0, nil
}

func fairExclusion(c *trial) { c.exclude(c.kind(inOrder)) }

// A waiter that died in the queue is passed over within a second.
func fairDeadWaiter(c *trial) {
	dead, a, b, key := c.open(), c.kindLocker(), c.kindLocker(), c.newKey()
	_, held := c.enter(a.Locker, c.kind(inOrder), key)
	gone := dead.kindOf(key, c.long(), driver.Mode{Kind: driver.Fair})
	gone.Queue = true
	dead.refused(gone)
	next := c.begin(b, inOrder, key)
	c.waits("the call behind a dead waiter", next)
	begin := time.Now()
	c.leave(held)
	after := c.comes("the call behind a dead waiter", next)
	c.within("passing over a dead waiter", begin, time.Second)
	c.leave(after)
}

// A call that gives up leaves the queue, and does not delay the others.
func fairGivesUp(c *trial) {
	a, b, d, key := c.kindLocker(), c.kindLocker(), c.kindLocker(), c.newKey()
	_, held := c.enter(a.Locker, c.kind(inOrder), key)
	ctx, cancel := context.WithCancel(c.bounded())
	gone := entering(ctx, b.Locker, c.kind(inOrder), key)
	for b.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	next := c.begin(d, inOrder, key)
	c.waits("the next call in the queue", next)
	cancel()
	if e := <-gone; e.err == nil {
		c.Error("the call that gave up has got the lock")
	}
	time.Sleep(time.Second) // for its undo
	begin := time.Now()
	c.leave(held)
	after := c.comes("the next call in the queue", next)
	c.within("the grant after a call that gave up", begin, time.Second) // its place would last longer
	c.leave(after)
}

// lostAnswer checks that an acquire whose answer was lost leaves nothing behind (CURATOR-335).
func lostAnswer(p lock.Policy) func(c *trial) {
	return func(c *trial) {
		l, faults := c.lockerFaulty()
		b, key := c.kindLocker(), c.newKey()
		_, held := c.enter(l, c.kind(p), key) // sets up connections
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
		c.leave(c.comes("another client", c.begin(b, p, key)))
	}
}
