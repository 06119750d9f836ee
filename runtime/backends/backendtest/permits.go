package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A key has as many holders at a time as there are permits.
var permits = []check{
	{name: "NoMore", needs: []Ability{Semaphores}, run: noMore, without: refusesKind(lock.Policy{Permits: 2})},
	{name: "Crash", needs: []Ability{Semaphores, Lapse}, run: permitOfTheDead},
	{name: "Weights", needs: []Ability{Semaphores}, run: weights},
	{name: "SmallerNumber", needs: []Ability{Semaphores}, run: smallerNumber},
	{name: "Tokens", needs: []Ability{Semaphores}, run: permitTokens},
	{name: "AllTaken", needs: []Ability{Semaphores}, run: allTaken},
	{name: "SomeLost", needs: []Ability{Semaphores, Lapse}, run: somePermitsLost},
	{name: "LostAnswer", needs: []Ability{Semaphores, NetworkFaults}, run: lostAnswer(lock.Policy{Permits: 2, Weight: 2})},
	{name: "Removed", needs: []Ability{Semaphores, Removal}, run: permitRemoved},
}

// No more calls are inside than there are permits, and no permit is lost.
func noMore(c *trial) {
	const lockers, goroutines, times, n = 3, 4, 10, 3
	key, p := c.newKey(), lock.Policy{Permits: n}
	var done atomic.Int64
	var r insiders
	var all sync.WaitGroup
	for range lockers {
		l := c.kindLocker()
		for range goroutines {
			all.Go(func() {
				for range times {
					begin := time.Now()
					err := l.Do(c.contended(), c.kind(p), key, func(ctx context.Context) error {
						defer r.enter(ctx)()
						time.Sleep(2 * time.Millisecond)
						done.Add(1)
						return nil
					})
					c.done(begin, err)
				}
			})
		}
	}
	all.Wait()
	if r.most > n {
		c.Errorf("%d calls were inside at the same time, with %d permits", r.most, n)
	}
	if d := done.Load(); d != lockers*goroutines*times {
		c.Errorf("%d of %d critical sections ran", d, lockers*goroutines*times)
	}
	l := c.kindLocker()
	var holders []*lock.Hold
	for range n { // all permits are free
		held, err := c.try(l, p, key)
		if err != nil {
			c.Fatalf("a permit is lost: %v", err)
		}
		defer c.leave(held)
		holders = append(holders, held)
	}
	c.notNow(c.kindLocker(), p, key, holders...)
}

// insiders counts how many calls are inside at the same time and have not lost their lock.
type insiders struct {
	mu     sync.Mutex // guards the rest
	inside map[context.Context]bool
	most   int
}

func (r *insiders) enter(ctx context.Context) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside == nil {
		r.inside = map[context.Context]bool{}
	}
	r.inside[ctx] = true
	n := 0
	for other := range r.inside {
		if lock.Check(other) == nil {
			n++
		}
	}
	r.most = max(r.most, n)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.inside, ctx)
	}
}

func permit(n, weight int) driver.Mode {
	return driver.Mode{Kind: driver.Permits, Permits: n, Weight: weight}
}

// A permit whose holder died is free after its ttl, while the other holders keep theirs.
func permitOfTheDead(c *trial) {
	dead, live, b, key := c.open(), c.open(), c.open(), c.newKey()
	gone := dead.get(dead.kindOf(key, c.h.TTL, permit(2, 1)))
	lease := live.get(live.kindOf(key, c.long(), permit(2, 1)))
	if early, err := b.Acquire(c.bounded(), b.kindOf(key, c.long(), permit(2, 1))); err == nil {
		if left := gone.Deadline().Left(); left > 0 {
			c.Errorf("a permit was given to another client %v before the Deadline of its lease", left)
		}
		c.free(early)
	} else if !isHeld(err) {
		c.Errorf("Acquire of a permit that another client holds: %v; it must be a *driver.HeldError", err)
	}
	time.Sleep(c.over())
	other := b.get(b.kindOf(key, c.long(), permit(2, 1)))
	b.refused(b.kindOf(key, c.long(), permit(2, 1)))
	c.free(other)
	c.free(lease)
}

func weights(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	two, one := lock.Policy{Permits: 3, Weight: 2}, lock.Policy{Permits: 3}
	_, heavy := c.enter(a.Locker, c.kind(two), key)
	c.notNow(b, two, key, heavy)
	c.notNow(a, two, key, heavy)
	_, light := c.enter(b.Locker, c.kind(one), key)
	c.notNow(a, one, key, heavy, light)
	waiting := c.begin(b, two, key)
	c.waits("the call of weight 2", waiting)
	c.leave(light)
	c.waits("the call of weight 2", waiting)
	c.notNow(a, one, key, heavy) // else it would overtake the call that waits for two permits
	c.leave(heavy)
	c.leave(c.comes("the call of weight 2", waiting))
}

// While a deployment changes the number of permits, the smaller one counts.
func smallerNumber(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	few, many := lock.Policy{Permits: 1}, lock.Policy{Permits: 3}
	_, one := c.enter(a.Locker, c.kind(many), key)
	c.notNow(b, few, key, one)
	_, two := c.enter(b.Locker, c.kind(many), key)
	waiting := c.begin(a, few, key)
	c.waits("the call with Permits: 1", waiting)
	c.leave(one)
	c.waits("the call with Permits: 1", waiting)
	c.leave(two)
	last := c.comes("the call with Permits: 1", waiting)
	c.notNow(b, many, key, last)
	c.leave(last)
	held, err := c.try(b, many, key)
	if err != nil {
		c.Errorf("acquire of a permit after the release of the call with Permits: 1: %v", err)
	}
	c.leave(held)
}

// Each permit has a token of its own, higher than all tokens given before.
func permitTokens(c *trial) {
	a, b, key := c.kindLocker(), c.kindLocker(), c.newKey()
	p := lock.Policy{Permits: 4}
	var last uint64
	for i := range 12 {
		l := []*kindLocker{a, b}[i%2]
		_, held := c.enter(l.Locker, c.kind(p), key)
		if held.Token() <= last {
			c.Errorf("token %d after token %d", held.Token(), last)
		}
		last = held.Token()
		if i%3 > 0 {
			c.leave(held)
		} else if i < 9 {
			defer c.leave(held)
		} else {
			c.leave(held)
		}
	}
}

// A permit that was removed at the engine is lost, and Renew and Release tell its holder.
func permitRemoved(c *trial) {
	a, key := c.open(), c.newKey()
	lease := a.get(a.kindOf(key, c.long(), permit(2, 1)))
	c.h.Remove(c.T, key)
	c.lost("Renew of a permit that was removed", lease.Renew(c.bounded(), c.long()))
	c.lost("Release of a permit that was removed", lease.Release(c.bounded(), last(lease)))
}

// While all permits are taken, a call that names their number again creates no new ones (redisson#4678).
func allTaken(c *trial) {
	const n = 3
	a, key, p := c.kindLocker(), c.newKey(), lock.Policy{Permits: n}
	var all []*lock.Hold
	for range n {
		_, held := c.enter(a.Locker, c.kind(p), key)
		all = append(all, held)
	}
	for range 2 * n {
		c.notNow(c.kindLocker(), p, key, all...)
	}
	c.leave(all[0])
	b := c.kindLocker()
	_, next := c.enter(b.Locker, c.kind(p), key)
	all = append(all[1:], next)
	c.notNow(c.kindLocker(), p, key, all...)
	for _, held := range all {
		c.leave(held)
	}
}

// Permits are released, and one of them was lost before. After that the other permits are free, and
// there are no more permits than before (redisson#6343).
func somePermitsLost(c *trial) {
	const n = 2
	a, b, key := c.open(), c.kindLocker(), c.newKey()
	c.free(a.get(a.attempt(c.newKey()))) // the first request takes longer, because the client connects
	lost := a.get(a.kindOf(key, c.h.TTL, permit(n, 1)))
	kept := a.get(a.kindOf(key, c.long(), permit(n, 1)))
	time.Sleep(c.over())
	_, next := c.enter(b.Locker, c.kind(lock.Policy{Permits: n}), key)
	c.lost("Release of a permit after its end", lost.Release(c.bounded(), last(lost)))
	c.free(kept)
	_, other := c.enter(b.Locker, c.kind(lock.Policy{Permits: n}), key)
	c.notNow(c.kindLocker(), lock.Policy{Permits: n}, key, next, other)
	c.leave(next)
	c.leave(other)
}
