package backendtest

import (
	"context"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// A kind of lock that is not to be had is refused before anything is taken.
var kinds = []check{
	{name: "Refused", run: kindsRefused},
	{name: "TTL", run: ttlRange},
}

// No engine has these yet. When one does, it gets checks of its own here.
func kindsRefused(c *trial) {
	l, key := c.locker(), c.newKey()
	for kind, p := range map[string]*lock.Policy{
		"read":    {TTL: c.h.TTL, Read: true},
		"write":   {TTL: c.h.TTL, Write: true},
		"fair":    {TTL: c.h.TTL, Fair: true},
		"permits": {TTL: c.h.TTL, Permits: 3},
	} {
		begin := time.Now()
		err := l.Do(c.bounded(), p, key, func(context.Context) error {
			c.Errorf("a lock of kind %q was granted", kind)
			return nil
		})
		c.is("a lock of kind "+kind, err, lock.ErrInvalid)
		c.within("the refusal", begin, overrun)
	}
	c.free(c.open().take(key))
}

// A ttl that the backend doesn't take is refused with the limit, and nothing sent.
func ttlRange(c *trial) {
	a := c.open()
	try := func(ttl, limit time.Duration) {
		attempt := a.attempt(c.newKey())
		attempt.TTL = ttl
		lease, err := a.Acquire(c.bounded(), attempt)
		if lease != nil {
			c.Errorf("a lease of %v was granted; the harness says that %v is the limit", ttl, limit)
			c.released(lease)
			return
		}
		c.refusedBy("a lease of "+ttl.String(), err, attempt, limit.String())
	}
	if c.h.MinTTL > lock.MinTTL {
		try(c.h.MinTTL/2, c.h.MinTTL)
		try(c.h.MinTTL-time.Millisecond, c.h.MinTTL)
	}
	if c.h.MaxTTL > 0 {
		try(c.h.MaxTTL+time.Second, c.h.MaxTTL)
	}
	c.free(a.take(c.newKey()))
}
