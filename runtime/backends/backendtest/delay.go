package backendtest

import (
	"context"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// A lock that was lost can't be acquired until its Delay is over.
var delays = []check{
	{name: "Lost", needs: []Ability{Lapse}, run: delayOfTheLost},
	{name: "Released", run: delayOfTheReleased},
}

// The context of the holder that lost a lock ends when its TTL is over. During the Delay after
// that nobody else can acquire the lock.
func delayOfTheLost(c *trial) {
	l, other, key := c.locker(), c.locker(), c.newKey()
	p := &lock.Policy{TTL: c.h.TTL, Delay: c.h.TTL, NoRenew: true}
	asked := time.Now()
	ctx, held := c.enter(l, p, key)
	granted := time.Now()
	<-ctx.Done()
	c.within("the end of a lease with a Delay", granted, c.h.TTL+overrun)
	_, theirs := c.enter(other, &lock.Policy{TTL: c.long()}, key)
	if closed := time.Since(asked); closed < 2*c.h.TTL-c.h.TTL/10 {
		c.Errorf("a lock that was lost could be acquired %v after it was requested, with a TTL and a Delay of %v each", closed, c.h.TTL)
	}
	c.leave(theirs)
	_ = finish(held)
}

// A release ends the Delay.
func delayOfTheReleased(c *trial) {
	l, other, key := c.locker(), c.locker(), c.newKey()
	_, held := c.enter(l, &lock.Policy{TTL: c.long() / 2, Delay: c.long() / 4}, key)
	c.leave(held)
	begin := time.Now()
	err := other.Do(c.bounded(), c.policy(), key, func(context.Context) error { return nil })
	if err != nil {
		c.Errorf("an acquire after the release of a lock with a Delay: %v", err)
	}
	c.within("an acquire after the release of a lock with a Delay", begin, c.long()/8)
}
