package backendtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Keys are bytes. Two different keys are two locks, and a key that the engine can't
// store is refused.
var keys = []check{
	{name: "Distinct", run: keysDistinct},
	{name: "AllBytes", run: keysOfAllBytes},
	{name: "Prefixes", run: keysNested},
	{name: "Length", run: keyLength},
	{name: "Conflict", needs: []Ability{Conflict}, run: conflict},
	{name: "Undo", run: undoOfRefusedKey},
}

// refusedBy requires that err wraps ErrInvalid, that its text contains says, and that
// nothing was sent.
func (c *trial) refusedBy(what string, err error, a *driver.Acquisition, says string) {
	c.Helper()
	c.is(what, err, lock.ErrInvalid)
	if err != nil && !strings.Contains(err.Error(), says) {
		c.Errorf("the refusal of %s, %q, does not name the limit %s", what, err, says)
	}
	if a.MayHaveRun {
		c.Errorf("%s was sent before it was refused", what)
	}
}

// keysAtOnce is how many requests allDistinct makes at once.
const keysAtOnce = 4

// allDistinct holds locks on all names at the same time, and requires that no two are one lock.
// A name for which Harness.Refuses has a reason must be refused.
func (c *trial) allDistinct(names []string) {
	c.Helper()
	a, b := c.open(), c.open()
	base, ttl := c.prefix+":", c.atLeast(time.Minute) // many keys take a slow machine more than c.long
	leases := make([]driver.Lease, len(names))
	c.each(keysAtOnce, len(names), func(i int) {
		key := c.h.Key(base + names[i])
		attempt := a.attempt(key)
		attempt.TTL = ttl
		lease, err := a.Acquire(c.bounded(), attempt)
		switch reason := c.h.Refuses(key); {
		case reason != "":
			if lease != nil {
				c.released(lease)
			}
			c.refusedBy(fmt.Sprintf("the key %q (%s)", key, reason), err, attempt, "")
		case isHeld(err):
			c.Errorf("the key %q is refused as held while other keys are held: the backend confuses it with one of them", key)
		case err != nil:
			c.Errorf("the key %q: %v; if the backend can't store it, say so in Refuses", key, err)
		default:
			leases[i] = lease
		}
	})
	c.each(keysAtOnce, len(names), func(i int) {
		if leases[i] == nil {
			return
		}
		key := c.h.Key(base + names[i])
		if err := leases[i].Renew(c.bounded(), ttl); err != nil {
			c.Errorf("Renew of the lock on %q: %v", key, err)
		}
		if err := leases[i].Release(c.bounded(), last(leases[i])); err != nil {
			c.Errorf("Release of the lock on %q: %v", key, err)
		}
		again, err := b.Acquire(c.bounded(), b.attempt(key))
		if err != nil {
			c.Errorf("Acquire of %q, which was released: %v", key, err)
			return
		}
		c.released(again)
	})
}

func keysDistinct(c *trial) {
	c.allDistinct([]string{
		"key", "Key", "KEY", "key ", " key", "key\t", "key\n", "key.", "key,", "key;", "key'", `key"`, "key`", `key\`, `key\n`,
		"key--", "key/*", "key%", "key%20", "key%%", "key_", "key?", "key*", "key#x", "key&x=y", "key=", "key+", "key$1", "key@x",
		"a:b", "a:b:c", "a::b", "{a}b", "{a}c", "a{b}", "(a)", "[a]", "<a>", "a|b", "a^b", "a~b", "a!b",
		"é", "e\u0301", "ß", "ss", "İ", "i", "I", "ı", "日本", "\u200bkey", "key\u00a0", "0", "00", "-1", "1e3", "nil", "NULL", "..", ".",
	})
}

// Each byte can be the end of a key, valid UTF-8 or not.
func keysOfAllBytes(c *trial) {
	names := []string{"b"}
	for i := range 256 {
		if i != '{' && i != '}' { // the generator refuses an unbalanced brace
			names = append(names, "b"+string([]byte{byte(i)}))
		}
	}
	c.allDistinct(names)
}

// A key may be a prefix of another key, whether or not the prefix ends at a separator of the engine.
func keysNested(c *trial) {
	c.allDistinct([]string{
		"a", "a/b", "a/b/c", "a/", "a//b", "a:b", "ab", "a.b", "a-b", "a%2Fb", "a/.lock", "a/lock", "a/0", "a/_c_0-lock-0000000000",
	})
}

func keyLength(c *trial) {
	a, b := c.open(), c.open()
	longest := c.h.MaxKey
	if longest == Unlimited {
		longest = 64 << 10
	}
	key := c.h.Key(c.prefix + ":")
	if len(key) > longest {
		c.Fatalf("the harness says that a key has at most %d bytes, but its own %q has more", longest, key)
	}
	key += strings.Repeat("k", longest-len(key))
	lease := a.take(key)
	b.held(key)
	sibling := b.attempt(key[:len(key)-1] + "j") // if the backend cuts keys, both keys are the same
	c.free(b.get(sibling))
	if err := lease.Renew(c.bounded(), c.h.TTL); err != nil {
		c.Errorf("Renew of the longest key: %v", err)
	}
	c.free(lease)
	if c.h.MaxKey == Unlimited {
		return
	}
	for _, longer := range []string{key + "k", strings.Repeat(key, 3)} {
		attempt := a.attempt(longer)
		_, err := a.Acquire(c.bounded(), attempt)
		c.refusedBy(fmt.Sprintf("a key of %d bytes", len(longer)), err, attempt, fmt.Sprint(c.h.MaxKey))
		err = c.locker().Do(c.bounded(), c.policy(), longer, func(context.Context) error { return nil })
		c.is("a key that is too long, with a Locker", err, lock.ErrInvalid)
	}
}

// Data at a key that is not a lock stays as it is, and the caller gets an error at once.
func conflict(c *trial) {
	a, key := c.open(), c.newKey()
	c.h.Occupy(c.T, key)
	for range 2 {
		_, err := a.Acquire(c.bounded(), a.attempt(key))
		c.is("Acquire of a key at which something other than a lock is stored", err, lock.ErrConflict)
	}
	begin := time.Now()
	err := c.locker().Do(c.bounded(), c.policy(), key, func(context.Context) error {
		c.Error("the method ran")
		return nil
	})
	c.is("the same with a Locker", err, lock.ErrConflict)
	c.within("the refusal", begin, pollLimit)
}

// An acquisition that was refused needs no undo. Undo of it succeeds at once, so that a Locker
// does not call it again.
func undoOfRefusedKey(c *trial) {
	a := c.open()
	attempts := []*driver.Acquisition{a.attempt(c.newKey())} // never acquired
	if c.h.MaxKey != Unlimited {
		attempts = append(attempts, a.attempt(strings.Repeat("k", c.h.MaxKey+1)))
	}
	for _, attempt := range attempts {
		attempt.Queue = true
		if err := a.Undo(c.bounded(), attempt); err != nil {
			c.Errorf("Undo of an acquisition that took nothing: %v", err)
		}
	}
}
