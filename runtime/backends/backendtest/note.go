package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// noter returns the Backend of cl if it stores notes, and nil otherwise. It takes a lock and holds it
// until the check ends, because a note may belong to the session of a lock.
func (cl *client) noter() driver.Noter {
	n, ok := cl.Backend.(driver.Noter)
	if ok && !errors.Is(n.PutNote(cl.c.bounded(), "wait/none", "", 0), errors.ErrUnsupported) {
		l := cl.take(cl.c.newKey())
		cl.c.Cleanup(func() { cl.c.free(l) })
		return n
	}
	cl.c.Log("the Backend stores no notes: see driver.Noter")
	return nil
}

// notes checks that processes can read each other's notes, if the backend stores notes.
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
	put(one, "", 0) // removes a note that does not exist
	put(one, "first", time.Minute)
	want("first")
	const odd = `[{"id":"ü\u0000"}] '%22' "+5"`
	put(two, odd, time.Minute)
	want(odd)
	// A lock on the key does not change the note.
	lease := a.take(key)
	want(odd)
	c.free(lease)
	want(odd)
	put(one, "", 0)
	want("")
	// A note ends by itself, even if an earlier one of this name had a longer ttl.
	put(one, "long", time.Minute)
	c.inOtherProcess(func(n driver.Noter) {
		begin := time.Now()
		put(n, "brief", time.Second)
		got := c.note(one, "wait/"+key)
		if ended := got == "" && time.Since(begin) >= time.Second; got != "brief" && !ended {
			c.Errorf("Note: %q, want %q", got, "brief")
		}
	})
	for end := time.Now().Add(c.long() + c.timeout()); c.note(one, "wait/"+key) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("a note with a ttl of a second still exists after %v, although its process has ended", c.long()+c.timeout())
		}
	}
}

// inOtherProcess runs do as another process, which ends after that.
func (c *trial) inOtherProcess(do func(driver.Noter)) {
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

// cycleEvents receives the events that report nesting orders that contradict each other.
type cycleEvents chan lock.Event

// Observe implements [lock.Observer].
func (events cycleEvents) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.OrderCycle {
		events <- e
	}
}

// orders has two processes nest locks in opposite orders, one after the other. The Observer of the
// second process must get an event, although the first process has ended.
func orders(c *trial) {
	n := c.open().noter()
	if n == nil {
		return
	}
	for range 3 {
		if c.ordersReported(n) {
			return
		}
	}
	c.Error("no Observer got an event although two processes nested locks in opposite orders")
}

// ordersReported has two processes nest two locks, and reports whether the second one's Observer got an
// event. On a late machine it may get none: see awaitEffect.
func (c *trial) ordersReported(n driver.Noter) bool {
	events := make(cycleEvents, 10)
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
	first := lock.New(c.h.Open(c.T), &lock.Options{Observer: events})
	nest(first, 0, 1)
	if !c.awaitEffect("there is no note on the order", func() bool { return c.note(n, name(0, 1)) != "" }) {
		c.closeLocker(first)
		return false
	}
	c.closeLocker(first)
	second := lock.New(c.h.Open(c.T), &lock.Options{Observer: events})
	c.Cleanup(func() { c.closeLocker(second) })
	nest(second, 1, 0)
	if !c.awaitEffect("no Observer got an event about opposite orders", func() bool { return len(events) > 0 }) {
		return false
	}
	<-events
	nest(second, 1, 0)
	if len(events) > 0 {
		c.Error("the Observer got a second event")
	}
	return true
}

// awaitEffect waits for the effect of a nested acquire that has just returned, until is reports it,
// and reports whether it came. A Locker gives up after a second if the engine has not answered, so
// the effect may not come if the machine was late by half a second. Otherwise awaitEffect fails the
// check with the text of without.
func (c *trial) awaitEffect(without string, is func() bool) bool {
	c.Helper()
	begin := time.Now().Add(-time.Second)
	for ; time.Since(begin) < 4*time.Second; time.Sleep(10 * time.Millisecond) {
		if is() {
			return true
		}
	}
	if lag := c.lag(begin); lag < time.Second/2 {
		c.Errorf("3 s after a nested acquire: %s (the machine was late by %v)", without, lag)
	}
	return false
}
