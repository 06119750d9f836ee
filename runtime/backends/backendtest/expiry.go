package backendtest

import (
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease ends in time at the engine, and earlier than that for its holder.
var expiry = []check{
	{name: "InTime", needs: []Ability{Lapse}, run: expiresInTime, without: lastsByItself},
	{name: "DeadClient", needs: []Ability{NetworkFaults}, run: deadClient},
	{name: "DeadlineOfAcquire", needs: []Ability{NetworkFaults}, run: deadlineOfAcquire},
	{name: "DeadlineOfRenewal", needs: []Ability{NetworkFaults}, run: deadlineOfRenewal},
	{name: "DeadlineAhead", run: deadlineAhead},
	{name: "HolderHearsFirst", needs: []Ability{NetworkFaults}, run: holderHearsFirst},
	{name: "FixedLease", needs: []Ability{Lapse}, run: fixedLease, without: lastsByItself},
}

// A lease that nobody renews ends, but not before its Deadline. After that it is lost.
func expiresInTime(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	old := a.takeFor(key, c.h.TTL)
	next := b.eventually(key)
	if left := old.Deadline().Left(); left > 0 {
		c.Errorf("another client took the key %v before the Deadline of the holder's lease", left)
	}
	c.lost("Renew of a lease that ended", old.Renew(c.bounded(), c.h.TTL))
	a.held(key)
	c.free(next)
}

// lastsByItself checks a lease that its client keeps alive by itself: its Deadline moves forward.
func lastsByItself(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.takeFor(key, c.h.TTL)
	for begin := time.Now(); time.Since(begin) < 2*c.over(); time.Sleep(c.h.TTL / 10) {
		if lease.Deadline().Left() <= 0 {
			c.Fatal("the harness says that a lease does not lapse, but its Deadline has passed")
		}
	}
	b.held(key)
	c.free(lease)
}

// A client that can't reach the engine any more loses its lease in time, and knows it.
func deadClient(c *trial) {
	a, faults := c.openFaulty()
	b := c.open()
	key := c.newKey()
	old := a.takeFor(key, c.h.TTL)
	faults.Silence()
	next := b.eventually(key)
	if left := old.Deadline().Left(); left > 0 {
		c.Errorf("another client took the key %v before the Deadline of the holder's lease", left)
	}
	faults.Heal()
	c.free(next)
}

// slow is the delay of answers in checks of the Deadline. It is shorter than the time after which
// a client sends a request again.
func (c *trial) slow() time.Duration { return min(c.h.TTL/4, 300*time.Millisecond) }

// fromSending requires that a Deadline counts from before its request was sent. call makes
// the request, whose answer is delayed, and returns a lease with the length steady. From a longer
// lease an engine may subtract more, for clocks that drift, than the delay of the answer. A
// Deadline that counts from the answer is too late by that delay each time. A right one seems
// late only if the machine stops at that moment, and it has passed if the machine stops for longer.
func (c *trial) fromSending(what string, faults Faults, call func() (l driver.Lease, sent time.Time, err error)) {
	c.Helper()
	least := time.Hour
	for range 5 {
		lease, sent, err := call()
		left := lease.Deadline().Left()
		end := time.Now().Add(left)
		if err != nil && left > 0 {
			c.Fatalf("%s, %v before the Deadline: %v", what, left, err)
		}
		if err == nil {
			least = min(least, end.Sub(sent)-c.steady())
		}
		faults.Delay(0)
		c.released(lease)
		if least < c.slow()/2 {
			return
		}
	}
	c.Errorf("the Deadline of %s is %v later than the call plus one ttl, and answers take %v: it must count from before the request was sent",
		what, least, c.slow())
}

func deadlineOfAcquire(c *trial) {
	a, faults := c.openFaulty()
	key := c.newKey()
	c.free(a.take(key)) // sets up connections, sessions and scripts
	c.fromSending("Acquire", faults, func() (driver.Lease, time.Time, error) {
		faults.Delay(c.slow())
		c.free(a.take(c.newKey())) // a client that expects fast answers may send a request twice
		sent := time.Now()
		return a.takeFor(key, c.steady()), sent, nil
	})
}

func deadlineOfRenewal(c *trial) {
	a, faults := c.openFaulty()
	key := c.newKey()
	ttl := c.steady()
	c.fromSending("Renew", faults, func() (driver.Lease, time.Time, error) {
		lease := a.takeFor(key, ttl)
		if err := lease.Renew(c.bounded(), ttl); err != nil { // sets up connections
			return lease, time.Time{}, err
		}
		faults.Delay(c.slow())
		sent := time.Now()
		return lease, sent, lease.Renew(c.bounded(), ttl)
	})
}

// A lease that was just granted or renewed has not ended, and is not longer than requested.
func deadlineAhead(c *trial) {
	a := c.open()
	ttl := c.long()
	lease := a.takeFor(c.newKey(), ttl)
	for range 2 {
		if left := lease.Deadline().Left(); left <= 0 || left > ttl {
			c.Errorf("the Deadline is in %v; the lease was just granted or renewed for %v", left, ttl)
		}
		if err := lease.Renew(c.bounded(), ttl); err != nil {
			c.Errorf("Renew: %v", err)
		}
	}
	c.free(lease)
}

// The context of a holder that is cut off ends before another client gets the lock.
func holderHearsFirst(c *trial) {
	l, faults := c.lockerFaulty()
	key := c.newKey()
	ctx, held := c.enter(l, c.shortPolicy(), key)
	faults.Silence()
	next := c.open().takeWithin(key, c.over()+c.h.TTL, "its holder was cut off") // a renewal may just have been sent
	c.lost("lock.Check of the holder after another client took the key", lock.Check(ctx))
	c.ended(ctx)
	faults.Heal()
	c.lost("what the wrapper returns", finish(held))
	c.free(next)
}

// A lease with NoRenew ends, first for its holder and then at the engine.
func fixedLease(c *trial) {
	l, key := c.locker(), c.newKey()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	ctx, held := c.enter(l, &lock.Policy{TTL: c.h.TTL, NoRenew: true}, key)
	begin := time.Now()
	next := entering(c.bounded(), c.locker(), c.shortPolicy(), key)
	c.ended(ctx)
	c.within("the end of a fixed lease", begin, c.h.TTL+overrun)
	e := c.entered(next)
	c.within("the next holder's acquire", begin, c.over()+pollLimit)
	c.lost("what the wrapper returns", finish(held))
	c.leave(e.held)
}
