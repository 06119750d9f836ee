package backendtest

import (
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease ends in time at the engine, and earlier for its holder.
var expiry = []check{
	{name: "InTime", needs: []Ability{Lapse}, run: expiresInTime, without: lastsByItself},
	{name: "DeadClient", needs: []Ability{NetworkFaults}, run: deadClient},
	{name: "DeadlineOfAcquire", needs: []Ability{NetworkFaults}, run: deadlineOfAcquire},
	{name: "DeadlineOfRenewal", needs: []Ability{NetworkFaults}, run: deadlineOfRenewal},
	{name: "DeadlineAhead", run: deadlineAhead},
	{name: "HolderHearsFirst", needs: []Ability{NetworkFaults}, run: holderHearsFirst},
	{name: "FixedLease", needs: []Ability{Lapse}, run: fixedLease, without: lastsByItself},
}

// A lease that nobody renews ends, not before its Deadline, and is lost then.
func expiresInTime(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	old := a.takeFor(key, c.h.TTL)
	next := b.eventually(key)
	if left := old.Deadline().Left(); left > 0 {
		c.Errorf("another took the key %v before the Deadline of its lease", left)
	}
	c.lost("Renew of a lease that ended", old.Renew(c.bounded(), c.h.TTL))
	a.held(key)
	c.free(next)
}

// lastsByItself is for a lease that its client keeps alive: its Deadline says so.
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

// A client that the engine hears no more of loses its lease in time, and knows.
func deadClient(c *trial) {
	a, faults := c.openFaulty()
	b := c.open()
	key := c.newKey()
	old := a.takeFor(key, c.h.TTL)
	faults.Silence()
	next := b.eventually(key)
	if left := old.Deadline().Left(); left > 0 {
		c.Errorf("another took the key %v before the Deadline of its lease", left)
	}
	faults.Heal()
	c.free(next)
}

// slow is how long answers take where it matters: less than a client waits before it asks again.
func (c *trial) slow() time.Duration { return min(c.h.TTL/4, 300*time.Millisecond) }

// fromSending requires that a deadline counts from before its request was sent:
// call, whose answer takes long, returns the lease, of steady: of a longer one an
// engine may take off more, for clocks that drift, than the answer takes. A deadline
// that counts from the answer is as much too late each time; one that is right, is
// late only when the machine halts just then, and over if it halts for longer.
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
	c.Errorf("the Deadline after %s is %v later than its ttl, counted from the call, where answers take %v: it must count from before the request was sent",
		what, least, c.slow())
}

func deadlineOfAcquire(c *trial) {
	a, faults := c.openFaulty()
	key := c.newKey()
	c.free(a.take(key)) // connections, sessions and scripts stand
	c.fromSending("Acquire", faults, func() (driver.Lease, time.Time, error) {
		faults.Delay(c.slow())
		c.free(a.take(c.newKey())) // a client that is used to fast answers may ask twice
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
		if err := lease.Renew(c.bounded(), ttl); err != nil { // connections stand
			return lease, time.Time{}, err
		}
		faults.Delay(c.slow())
		sent := time.Now()
		return lease, sent, lease.Renew(c.bounded(), ttl)
	})
}

// A lease that was just granted, or renewed, is neither over nor longer than asked for.
func deadlineAhead(c *trial) {
	a := c.open()
	ttl := c.long()
	lease := a.takeFor(c.newKey(), ttl)
	for range 2 {
		if left := lease.Deadline().Left(); left <= 0 || left > ttl {
			c.Errorf("the Deadline is %v ahead, of a lease of %v that was just granted or renewed", left, ttl)
		}
		if err := lease.Renew(c.bounded(), ttl); err != nil {
			c.Errorf("Renew: %v", err)
		}
	}
	c.free(lease)
}

// The method of a holder that is cut off ends before another is let in.
func holderHearsFirst(c *trial) {
	l, faults := c.lockerFaulty()
	key := c.newKey()
	ctx, held := c.enter(l, c.shortPolicy(), key)
	faults.Silence()
	next := c.open().takeWithin(key, c.over()+c.h.TTL, "its holder was cut off") // a renewal may just have gone out
	c.lost("lock.Check of the holder, when another had the key", lock.Check(ctx))
	c.ended(ctx)
	faults.Heal()
	c.lost("what the wrapper returns", finish(held))
	c.free(next)
}

// A lease that is not to be renewed ends, for its holder first.
func fixedLease(c *trial) {
	l, key := c.locker(), c.newKey()
	c.passesBy(l, c.newKey(), c.soon(), "connections stand")
	ctx, held := c.enter(l, &lock.Policy{TTL: c.h.TTL, NoRenew: true}, key)
	begin := time.Now()
	next := entering(c.bounded(), c.locker(), c.shortPolicy(), key)
	c.ended(ctx)
	c.within("the end of a fixed lease", begin, c.h.TTL+overrun)
	e := c.entered(next)
	c.within("the next one's entry", begin, c.over()+pollLimit)
	c.lost("what the wrapper returns", finish(held))
	c.leave(e.held)
}
