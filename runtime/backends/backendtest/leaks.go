package backendtest

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Locks that nobody uses any more leave nothing in the process and nothing at the engine.
var leaks = []check{
	{name: "Goroutines", alone: true, run: goroutinesAfterUse},
	{name: "Engine", needs: []Ability{Inspection}, run: engineForgets},
}

type testingT = testing.T

// sub returns a trial for a subtest. What it opens is closed at the end of the subtest.
func (c *trial) sub(t *testing.T) *trial { return newTrial(t, c.suite) }

// A Locker that has locked many keys, waited and given up runs no more goroutines
// than a Locker that has locked once.
func goroutinesAfterUse(c *trial) {
	l := c.locker()
	c.use(l)
	before := settled()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				err := l.Do(c.bounded(), c.policy(), c.newKey(), func(context.Context) error { return nil })
				if err != nil {
					c.Errorf("Do: %v", err)
				}
			}
		})
	}
	all.Wait()
	b := c.open()
	keys := c.newKeys(40)
	leases := make([]driver.Lease, len(keys))
	c.each(8, len(keys), func(i int) { leases[i] = b.get(b.attempt(keys[i])) })
	c.giveUp(l, keys, 50*time.Millisecond)
	c.each(8, len(keys), func(i int) { c.free(leases[i]) })
	c.use(l)
	const pool = 16 // connections that the client may keep
	limit := time.Now().Add(c.timeout())
	for settled() > before+pool {
		if time.Now().After(limit) {
			c.Fatalf("%d goroutines run; before there were %d", settled(), before)
		}
	}
}

// settled returns the number of goroutines once it has been the same for 20 ms. It waits for
// 400 ms at most.
func settled() int {
	n := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		now := runtime.NumGoroutine()
		if now == n {
			return n
		}
		n = now
	}
	return n
}

// The engine stores nothing for locks that were released, undone, or waited for by a call that
// gave up.
func engineForgets(c *trial) {
	l, b := c.locker(), c.open()
	keys := c.newKeys(20)
	held := b.get(b.attempt(keys[0]))
	if kept := c.h.Leftovers(c.T, c.h.Key(c.prefix)); len(kept) == 0 {
		c.Fatal("Leftovers finds nothing while a lock is held")
	}
	for range 4 {
		c.giveUp(l, keys, 20*time.Millisecond)
	}
	for _, key := range keys[1:] {
		err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error { return nil })
		if err != nil {
			c.Errorf("Do: %v", err)
		}
	}
	attempt := b.attempt(keys[0])
	attempt.Queue = true
	b.refused(attempt)
	if n, ok := b.Backend.(driver.Notifier); ok {
		if s, err := n.Subscribe(c.bounded(), attempt); err == nil {
			s.Close()
		}
	}
	b.undone(attempt)
	c.free(held)
	var kept []string
	for begin := time.Now(); time.Since(begin) < cleanedUp+c.h.Slack; time.Sleep(20 * time.Millisecond) {
		if kept = c.h.Leftovers(c.T, c.h.Key(c.prefix)); len(kept) == 0 {
			return
		}
	}
	c.Errorf("the engine stores %d entries of locks that nobody holds or waits for: %q", len(kept), kept[:min(len(kept), 5)])
}

// goroutines is a set of goroutines, by name: see name.
type goroutines map[string]bool

func running() goroutines {
	g := goroutines{}
	for _, stack := range stacks() {
		g[name(stack)] = true
	}
	return g
}

func stacks() [][]byte {
	all := make([]byte, 16<<20)
	return bytes.Split(all[:runtime.Stack(all, true)], []byte("\n\n"))
}

// name returns the name of the goroutine with this stack: "goroutine 42".
func name(stack []byte) string {
	line, _, _ := bytes.Cut(stack, []byte(" ["))
	return string(line)
}

// settle waits until all goroutines that did not run before have ended, and reports an error if
// they do not. Goroutines of package testing and of the suite itself don't count.
func (before goroutines) settle(c *trial, when string) {
	c.Helper()
	var left []byte
	for limit := time.Now().Add(c.timeout()); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		left = nil
		for _, stack := range stacks() {
			if !before[name(stack)] && !bytes.Contains(stack, []byte("testing.tRunner(")) {
				left = append(append(left, stack...), "\n\n"...)
			}
		}
		if left == nil {
			return
		}
	}
	c.Errorf("goroutines are left %s:\n%s", when, left)
}
