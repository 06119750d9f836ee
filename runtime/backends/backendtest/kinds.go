package backendtest

import (
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// What the engine does not have is refused before anything is taken.
var kinds = []check{
	{name: "TTL", run: ttlRange},
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
