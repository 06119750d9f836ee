package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// At most one holds a key, and is inside its lease.
var exclusion = []check{
	{name: "OneOwner", run: oneOwner},
	{name: "SameClient", run: sameClient},
	{name: "OthersAreFree", run: othersAreFree},
	{name: "Race", run: race},
	{name: "Lockers", run: lockersExclude},
	{name: "Crossing", run: crossingCalls},
}

// A key that is held is refused to other clients, by a HeldError.
func oneOwner(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	lease := a.take(key)
	b.held(key)
	b.held(key)
	c.free(lease)
	lease = b.take(key)
	a.held(key)
	c.free(lease)
}

// One client's acquisitions exclude each other too: an owner is an acquisition,
// no client and no session.
func sameClient(c *trial) {
	a := c.open()
	key := c.newKey()
	lease := a.take(key)
	a.held(key)
	c.free(lease)
	next := a.take(key)
	a.held(key)
	c.free(next)
}

func othersAreFree(c *trial) {
	a, b := c.open(), c.open()
	first, second := a.take(c.newKey()), b.take(c.newKey())
	third := a.take(c.newKey())
	for _, l := range []driver.Lease{first, second, third} {
		c.free(l)
	}
}

// Of many attempts at one instant, by several clients, one succeeds.
func race(c *trial) {
	clients := []*client{c.open(), c.open(), c.open()}
	for range 5 {
		key := c.newKey()
		var mu sync.Mutex
		var won []driver.Lease
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, cl := range clients {
			for range 4 {
				all.Go(func() {
					<-start
					lease, err := cl.Acquire(c.bounded(), cl.attempt(key))
					switch {
					case err == nil:
						mu.Lock()
						won = append(won, lease)
						mu.Unlock()
					case !isHeld(err):
						c.Errorf("Acquire in a race: %v; it must be a *driver.HeldError", err)
					}
				})
			}
		}
		close(start)
		all.Wait()
		if len(won) > 1 {
			c.Fatalf("%d attempts took one key", len(won))
		}
		if len(won) == 0 { // each saw another's attempt: allowed, if all give way
			won = append(won, clients[0].takeWithin(key, overrun, "all attempts were refused"))
		}
		c.free(won[0])
	}
}

// Sections under one key, of several Lockers with several goroutines each, never
// overlap: the race detector looks on.
func lockersExclude(c *trial) { c.exclude(c.policy()) }

func (c *trial) exclude(p *lock.Policy) {
	const lockers, goroutines, times = 3, 4, 5
	key := c.newKey()
	total := 0            // guarded by the lock under test
	var lost atomic.Int64 // before anything was done: see late
	var all sync.WaitGroup
	for range lockers {
		l := c.locker()
		for range goroutines {
			all.Go(func() {
				for range times {
					begin := time.Now()
					err := l.Do(c.contended(), p, key, func(ctx context.Context) error {
						if lock.Check(ctx) == nil {
							total++
						} else {
							lost.Add(1)
						}
						return nil
					})
					c.done(begin, err)
				}
			})
		}
	}
	all.Wait()
	if want := lockers*goroutines*times - int(lost.Load()); total != want {
		c.Errorf("%d sections counted %d", want, total)
	}
}
