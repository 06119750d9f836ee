package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A key has at most one holder at a time, and the holder's lease has not ended.
var exclusion = []check{
	{name: "OneOwner", run: oneOwner},
	{name: "SameClient", run: sameClient},
	{name: "OthersAreFree", run: othersAreFree},
	{name: "Race", run: race},
	{name: "Lockers", run: lockersExclude},
	{name: "Crossing", run: crossingCalls},
}

// While a key is held, other clients get a HeldError.
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

// Acquisitions of one client exclude each other too: the owner is the acquisition,
// not the client and not the session.
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

// Of many attempts at one instant, made by several clients, one succeeds.
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
		if len(won) == 0 { // allowed: each may have seen another's attempt, and given up
			won = append(won, clients[0].takeWithin(key, overrun, "all attempts were refused"))
		}
		c.free(won[0])
	}
}

// Critical sections under one key, of several Lockers with several goroutines each, never
// overlap. The race detector checks this too.
func lockersExclude(c *trial) { c.exclude(c.policy()) }

func (c *trial) exclude(p *lock.Policy) {
	const lockers, goroutines, times = 3, 4, 5
	key := c.newKey()
	total := 0            // guarded by the lock under test
	var lost atomic.Int64 // sections whose lock was lost before they did anything: see late
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
		c.Errorf("%d critical sections counted to %d", want, total)
	}
}
