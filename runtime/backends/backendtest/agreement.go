package backendtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// agreements checks that processes agree on a value, if the backend stores such values.
func agreements(c *trial) {
	a, b, key := c.open(), c.open(), c.newKey()
	one, ok := a.Backend.(driver.Agreement)
	if !ok {
		c.Log("the Backend does not implement driver.Agreement")
		return
	}
	two := b.Backend.(driver.Agreement)
	if _, err := one.CompareAndSwap(c.bounded(), key, "", ""); errors.Is(err, lock.ErrInvalid) {
		c.Logf("the Backend stores no values: %v", err)
		return
	}
	swap := func(r driver.Agreement, old, next, want string) {
		c.Helper()
		if now, err := r.CompareAndSwap(c.bounded(), key, old, next); err != nil || now != want {
			c.Errorf("CompareAndSwap(%q, %q): %q, %v; want %q", old, next, now, err, want)
		}
	}
	const odd = `"+5" "@6" %22 = 'ü'`
	swap(one, "", "", "")
	swap(two, "", odd, odd)
	swap(one, "", "", odd)
	swap(one, "", "lost", odd)
	swap(one, "lost", "lost", odd)
	swap(one, odd, "0", "0")
	swap(two, odd, "late", "0")
	if k, ok := a.Backend.(driver.Kinded); ok && k.Kinds()&driver.Fair != 0 {
		attempt := b.attempt(key)
		attempt.Mode.Kind = driver.Fair
		if _, err := b.Acquire(c.bounded(), attempt); !errors.Is(err, lock.ErrConflict) {
			c.Errorf("a fair lock on the key of a value: %v; it must wrap lock.ErrConflict", err)
		}
	}
	counted(c, key, one, two)
	swap(two, "", "", "")
}

// counted has two clients count to 40 at the same time, each by 20.
func counted(c *trial, key string, clients ...driver.Agreement) {
	var all sync.WaitGroup
	for i, r := range clients {
		all.Go(func() {
			for done, now := 0, "0"; done < 20; {
				number, _, _ := strings.Cut(now, " of ")
				n, _ := strconv.Atoi(number)
				next := fmt.Sprintf("%d of %d", n+1, i) // differs from what the other client writes at the same time
				got, err := r.CompareAndSwap(c.bounded(), key, now, next)
				if err != nil {
					c.Errorf("CompareAndSwap: %v", err)
					return
				}
				if now = got; got == next {
					done++
				}
			}
		})
	}
	all.Wait()
	now, err := clients[0].CompareAndSwap(c.bounded(), key, "", "")
	if number, _, _ := strings.Cut(now, " "); number != "40" || err != nil {
		c.Errorf("two clients that each counted by 20 at the same time reached %q, %v", now, err)
	}
	if _, err := clients[0].CompareAndSwap(c.bounded(), key, now, ""); err != nil {
		c.Errorf("CompareAndSwap: %v", err)
	}
}
