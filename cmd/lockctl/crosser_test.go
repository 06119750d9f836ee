package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/lockgen/lockgen/internal/lagmeter"
	lock "github.com/lockgen/lockgen/runtime"
)

// crossKeys is how many keys a round has.
const crossKeys = 10

// crosserMain is the main function of a process that nests locks while others do. It returns when
// its stdin ends.
func crosserMain() int {
	l, err := crossingLocker(os.Getenv(crosserEnv))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c := &crosses{l, lagmeter.Start()}
	defer c.meter.Stop()
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		fmt.Println(c.obey(orders.Text()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
	return 0
}

type crosses struct {
	locker *lock.Locker
	meter  *lagmeter.Meter
}

// obey executes an order. It answers "ok" and the results of its calls, or "lost" if a lock was
// lost. In a queue of Redis the first lease of the next waiter lasts half a second; a busy machine
// may need that long.
func (c *crosses) obey(order string) string {
	var prefix string
	keys, times := crossKeys, crossEach
	var pause string
	cross := func() (string, error) { return c.several(prefix) }
	if n, _ := fmt.Sscanf(order, "nested %s %d %d %s", &prefix, &keys, &times, &pause); n == 4 {
		section, err := time.ParseDuration(pause)
		if err != nil {
			return err.Error()
		}
		cross = func() (string, error) { return c.nested(prefix, keys, section) }
	} else {
		_, _ = fmt.Sscanf(order, "several %s", &prefix)
	}
	answer := "ok"
	for range times {
		text, err := cross()
		switch {
		case errors.Is(err, lock.ErrLost):
			return "lost"
		case err != nil:
			return strings.ReplaceAll(err.Error(), "\n", " ")
		}
		answer += " " + text
	}
	return answer
}

// nested takes two keys, one inside the other, in a random order. If section is not 0, all
// processes take them in the same order.
func (c *crosses) nested(prefix string, keys int, section time.Duration) (string, error) {
	some := rand.Perm(keys)[:2]
	a, b := some[0], some[1]
	if section > 0 {
		a, b = min(a, b), max(a, b)
	}
	p := &lock.Policy{TTL: crossTTL}
	var held, called, returned, released int64
	now := func() int64 { return time.Now().UnixNano() }
	err := c.locker.Do(context.Background(), p, fmt.Sprint(prefix, a), func(ctx context.Context) error {
		held = now()
		time.Sleep(time.Millisecond) // so that other processes take keys meanwhile
		called = now()
		inside, inner, err := c.locker.Acquire(ctx, p, fmt.Sprint(prefix, b))
		returned = now()
		if err == nil {
			time.Sleep(section)
			err = lock.Check(inside)
		}
		released = now()
		inner.Release(&err)
		return err
	})
	if err != nil && !errors.Is(err, lock.ErrDeadlock) {
		return "", err
	}
	lag := c.meter.Since(time.Unix(0, held))
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d,%d,%t", a, b, held, called, returned, released, int64(lag), err != nil), nil
}

// several takes two to five keys in one call. One call in five has a short wait.
func (c *crosses) several(prefix string) (string, error) {
	p := &lock.Policy{TTL: crossTTL}
	if rand.IntN(5) == 0 {
		p.Wait = time.Duration(1+rand.IntN(20)) * time.Millisecond
	}
	var reqs []lock.Request
	var keys []string
	for _, key := range rand.Perm(crossKeys)[:2+rand.IntN(4)] {
		keys = append(keys, fmt.Sprint(key))
		reqs = append(reqs, lock.Request{Policy: p, Key: fmt.Sprint(prefix, key)})
	}
	ctx, all, err := c.locker.AcquireAll(context.Background(), reqs...)
	if err != nil {
		if p.Wait > 0 && (errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrIndeterminate) || errors.Is(err, lock.ErrUnavailable)) {
			return "none", nil // its wait was over, perhaps before an answer came
		}
		return "", err
	}
	held := time.Now().UnixNano()
	time.Sleep(time.Millisecond)
	released := time.Now().UnixNano()
	err = lock.Check(ctx)
	all.Release(&err)
	return fmt.Sprintf("%d,%d,%s", held, released, strings.Join(keys, "+")), err
}
