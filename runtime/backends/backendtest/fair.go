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
	begin := time.Now()
	var all []<-chan *lock.Hold
	var line []int
	for i := range waiters {
		all, line = append(all, c.begin(lockers[i*i%3], inOrder, key)), append(line, i)
	}
	handed := time.Now()
	c.leave(held)
	for range all {
		next, h := c.oneOf(all)
		for ; line[0] != next; line = append(line[1:], line[0]) {
			// One that is late by more than its brief lease has lost its turn, and stands in line again.
			if after := time.Since(handed); after < briefLease && !c.placesEnd(begin) {
				c.Errorf("the lock went to the %dth to arrive, not to the %dth, after %v", next, line[0], after)
			}
		}
		all[next], line = nil, line[1:]
		for j, other := range all {
			if len(other) > 0 && !isLost(h) {
				c.Errorf("the %dth to arrive has the lock, and the %dth", next, j)
			}
		}
		handed = time.Now()
		c.leave(h)
	}
}

// placesEnd reports whether one that stands in line since begin may have lost its place: it has not
// asked for 2.5 s, although it does each second.
func (c *trial) placesEnd(begin time.Time) bool {
	const lasts = 2500 * time.Millisecond
	return time.Since(begin) >= lasts && c.lag(begin) >= lasts-pollLimit
}

// oneOf returns the hold that comes first, and whose it is.
func (c *trial) oneOf(all []<-chan *lock.Hold) (int, *lock.Hold) {
	c.Helper()
	for begin := time.Now(); time.Since(begin) < c.soon(); time.Sleep(time.Millisecond) {
		for i, held := range all {
			if len(held) > 0 {
				return i, c.comes("the next in line", held)
			}
		}
	}
	c.Fatal("none of those in line has got the lock")
	return 0, nil
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
