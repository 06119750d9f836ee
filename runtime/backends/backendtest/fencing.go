package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Each hold of a key has a higher token than the hold before it.
var fencing = []check{
	{name: "Rise", run: tokensRise},
	{name: "Blocks", run: tokenBlocks},
	{name: "AfterExpiry", needs: []Ability{Lapse}, run: tokensAfterExpiry},
	{name: "AfterRemoval", needs: []Ability{Removal}, run: tokensAfterRemoval},
	{name: "RenewalKeepsThem", run: tokensOverRenewals},
	{name: "Lockers", run: lockerTokens},
}

// block takes key and asks for n tokens.
func (cl *client) block(key string, n uint64, ttl time.Duration) driver.Lease {
	cl.c.Helper()
	a := cl.attempt(key)
	a.TTL = ttl
	a.Tokens = n
	lease := cl.get(a)
	from, got := lease.Tokens()
	if got == 0 || from == 0 || from+got < from {
		cl.c.Fatalf("Tokens() = %d, %d; a lease has at least one token, and no token is 0", from, got)
	}
	return lease
}

func tokensRise(c *trial) {
	clients := []*client{c.open(), c.open()}
	key := c.newKey()
	highest := uint64(0)
	for i := range 20 {
		lease := clients[i/2%2].take(key)
		c.above(lease, highest)
		highest = last(lease)
		c.free(lease)
	}
}

// above requires that l's tokens are above highest.
func (c *trial) above(l driver.Lease, highest uint64) {
	c.Helper()
	if from := first(l); from <= highest {
		c.Errorf("the first token is %d; %d was in use before", from, highest)
	}
}

// A block is used from its first token up, partly or to its end. The release says
// how far. The next block begins above the tokens that were used.
func tokenBlocks(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	const n = 1 << 16
	highest := uint64(0)
	for i, use := range []uint64{1, 3, n, n, 1, n, 2} {
		lease := []*client{a, b}[i%2].block(key, n, c.long())
		c.above(lease, highest)
		from, got := lease.Tokens()
		highest = from + min(use, got) - 1
		if err := lease.Release(c.bounded(), highest); err != nil {
			c.Fatalf("Release: %v", err)
		}
	}
}

// Nobody knows which tokens a dead holder has used, so all of its block count as used.
func tokensAfterExpiry(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	old := a.block(key, 1<<16, c.h.TTL)
	next := b.eventually(key)
	c.above(next, last(old))
	c.free(next)
}

func tokensAfterRemoval(c *trial) {
	a, b := c.open(), c.open()
	key := c.newKey()
	for range 5 {
		old := a.take(key)
		c.h.Remove(c.T, key)
		next := b.take(key)
		c.above(next, last(old))
		c.free(next)
	}
}

func tokensOverRenewals(c *trial) {
	a := c.open()
	lease := a.block(c.newKey(), 100, c.long())
	from, n := lease.Tokens()
	if err := lease.Renew(c.bounded(), c.long()); err != nil {
		c.Fatalf("Renew: %v", err)
	}
	if f, m := lease.Tokens(); f != from || m != n {
		c.Errorf("a renewal changed the tokens from %d, %d to %d, %d", from, n, f, m)
	}
	c.free(lease)
}

// With Lockers, each hold has a higher token than the hold before it, whether the
// lease was handed on in the process or came from the engine.
func lockerTokens(c *trial) {
	key := c.newKey()
	var highest uint64 // guarded by the lock under test
	var tokens int     // guarded by the lock under test
	var lost atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		l := c.locker()
		for range 4 {
			all.Go(func() {
				for range 10 {
					begin := time.Now()
					err := l.Do(c.contended(), c.policy(), key, func(ctx context.Context) error {
						if lock.Check(ctx) != nil {
							lost.Add(1) // see late
							return nil
						}
						token, ok := lock.Token(ctx)
						if !ok || token <= highest {
							c.Errorf("the token is %d (%v), after %d", token, ok, highest)
						}
						highest = max(highest, token)
						tokens++
						return nil
					})
					c.done(begin, err)
				}
			})
		}
	}
	all.Wait()
	if tokens += int(lost.Load()); tokens != 80 {
		c.Errorf("%d of 80 holds had a token", tokens)
	}
}
