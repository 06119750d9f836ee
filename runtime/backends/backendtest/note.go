package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// noter returns the Backend of cl if it keeps notes. It holds a lock meanwhile: a note may
// live on the session of one.
func (cl *client) noter() driver.Noter {
	n, ok := cl.Backend.(driver.Noter)
	if ok && !errors.Is(n.PutNote(cl.c.bounded(), "wait/none", "", 0), errors.ErrUnsupported) {
		l := cl.take(cl.c.newKey())
		cl.c.Cleanup(func() { cl.c.free(l) })
		return n
	}
	cl.c.Log("the Backend keeps no notes: see driver.Noter")
	return nil
}

// notes has processes read notes of each other, if the backend keeps such.
func notes(c *trial) {
	a, b, key := c.open(), c.open(), c.newKey()
	one := a.noter()
	if one == nil {
		return
	}
	two := b.noter()
	put := func(n driver.Noter, text string, ttl time.Duration) {
		c.Helper()
		if err := n.PutNote(c.bounded(), "wait/"+key, text, ttl); err != nil {
			c.Errorf("PutNote(%q, %v): %v", text, ttl, err)
		}
	}
	want := func(text string) {
		c.Helper()
		for _, n := range []driver.Noter{one, two} {
			if got := c.note(n, "wait/"+key); got != text {
				c.Errorf("Note: %q, want %q", got, text)
			}
		}
	}
	want("")
	put(one, "", 0) // there is none
	put(one, "first", time.Minute)
	want("first")
	const odd = `[{"id":"ü\u0000"}] '%22' "+5"`
	put(two, odd, time.Minute)
	want(odd)
	// The lock on the key is another matter.
	lease := a.take(key)
	want(odd)
	c.free(lease)
	want(odd)
	put(one, "", 0)
	want("")
	// It ends by itself, also if it was to last longer before.
	put(one, "long", time.Minute)
	c.briefly(func(n driver.Noter) {
		begin := time.Now()
		put(n, "brief", time.Second)
		got := c.note(one, "wait/"+key)
		if ended := got == "" && time.Since(begin) >= time.Second; got != "brief" && !ended {
			c.Errorf("Note: %q, want %q", got, "brief")
		}
	})
	for end := time.Now().Add(c.long() + c.soon()); c.note(one, "wait/"+key) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("a note for a second is still there after %v, and its process has ended", c.long()+c.soon())
		}
	}
}

// briefly is the life of another process, which puts notes.
func (c *trial) briefly(do func(driver.Noter)) {
	c.Helper()
	b := c.h.Open(c.T)
	if s, ok := b.(driver.Shared); ok {
		s.Attach()
	}
	cl := &client{Backend: b, c: c, id: newID(c)}
	l := cl.take(c.newKey())
	do(b.(driver.Noter))
	c.free(l)
	if err := b.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
}

func (c *trial) note(n driver.Noter, name string) string {
	c.Helper()
	text, err := n.Note(c.bounded(), name)
	if err != nil {
		c.Errorf("Note: %v", err)
	}
	return text
}

// cycleTold takes the event that tells of orders that contradict each other.
type cycleTold chan lock.Event

// Observe implements [lock.Observer].
func (told cycleTold) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.OrderCycle {
		told <- e
	}
}

// orders has two processes, of which the first has gone, nest locks in opposite orders. The
// second is told.
func orders(c *trial) {
	n := c.open().noter()
	if n == nil {
		return
	}
	for range 3 {
		if c.ordersAreTold(n) {
			return
		}
	}
	c.Error("nobody is told that two processes nest locks in opposite orders")
}

// ordersAreTold has two processes nest two locks, and reports whether the second was told. On a
// late machine it may not be: see exchanged.
func (c *trial) ordersAreTold(n driver.Noter) bool {
	told := make(cycleTold, 10)
	var patterns [2]string
	for i := range patterns {
		patterns[i] = c.newKey() + ":<id>"
	}
	nest := func(l *lock.Locker, i, j int) {
		ctx, outer := c.enter(l, &lock.Policy{Pattern: patterns[i], TTL: c.long()}, fmt.Sprint(patterns[i], i, j))
		_, inner, err := l.Acquire(ctx, &lock.Policy{Pattern: patterns[j], TTL: c.long()}, fmt.Sprint(patterns[j], i, j))
		if err != nil {
			c.Errorf("a nested acquire: %v", err)
		}
		c.leave(inner)
		c.leave(outer)
	}
	name := func(i, j int) string { return "order/" + patterns[i] + " > " + patterns[j] }
	c.Cleanup(func() {
		for i := range patterns {
			_ = n.PutNote(c.bounded(), name(i, 1-i), "", 0)
		}
	})
	first := lock.New(c.h.Open(c.T), &lock.Options{Observer: told})
	nest(first, 0, 1)
	if !c.exchanged("there is no note on the order", func() bool { return c.note(n, name(0, 1)) != "" }) {
		c.closeLocker(first)
		return false
	}
	c.closeLocker(first)
	second := lock.New(c.h.Open(c.T), &lock.Options{Observer: told})
	c.Cleanup(func() { c.closeLocker(second) })
	nest(second, 1, 0)
	if !c.exchanged("nobody was told that two processes nest locks in opposite orders", func() bool { return len(told) > 0 }) {
		return false
	}
	<-told
	nest(second, 1, 0)
	if len(told) > 0 {
		c.Error("it was told twice")
	}
	return true
}

// exchanged waits until is reports what comes of a nested acquire that has just returned, and
// reports whether it has. A Locker has a second for it, and leaves what an engine has not answered
// by then: so it may fail to come where the machine was late by half of that.
func (c *trial) exchanged(without string, is func() bool) bool {
	c.Helper()
	begin := time.Now().Add(-time.Second)
	for ; time.Since(begin) < 4*time.Second; time.Sleep(10 * time.Millisecond) {
		if is() {
			return true
		}
	}
	if lag := c.lag(begin); lag < time.Second/2 {
		c.Errorf("3 s after a nested acquire %s (the machine was late by %v)", without, lag)
	}
	return false
}
