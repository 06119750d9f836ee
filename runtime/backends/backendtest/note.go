package backendtest

import (
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// notes has processes read notes of each other, if the backend keeps such.
func notes(c *trial) {
	a, b, key := c.open(), c.open(), c.newKey()
	one, ok := a.Backend.(driver.Noter)
	if !ok {
		c.Log("the Backend is no driver.Noter")
		return
	}
	two := b.Backend.(driver.Noter)
	put := func(n driver.Noter, text string, ttl time.Duration) {
		c.Helper()
		if err := n.PutNote(c.bounded(), key, text, ttl); err != nil {
			c.Errorf("PutNote(%q, %v): %v", text, ttl, err)
		}
	}
	read := func(n driver.Noter) string {
		c.Helper()
		text, err := n.Note(c.bounded(), key)
		if err != nil {
			c.Errorf("Note: %v", err)
		}
		return text
	}
	want := func(text string) {
		c.Helper()
		for _, n := range []driver.Noter{one, two} {
			if got := read(n); got != text {
				c.Errorf("Note: %q, want %q", got, text)
			}
		}
	}
	want("")
	put(one, "", 0) // there is none
	put(one, "first", time.Minute)
	want("first")
	const odd = `[{"id":"ü\u0000"}] '%22'`
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
	put(two, "long", time.Minute)
	put(two, "brief", time.Second)
	for end := time.Now().Add(c.long() + c.soon()); read(one) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("a note for a second is still there after %v", c.long()+c.soon())
		}
	}
}
