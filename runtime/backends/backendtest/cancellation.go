package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A call ends with its context, whatever the engine does. A call that was given up
// leaves nothing at the engine.
var cancellation = []check{
	{name: "EndedBefore", run: endedBefore},
	{name: "Hung", needs: []Ability{NetworkFaults}, run: hungEngine},
	{name: "HungFromTheStart", needs: []Ability{NetworkFaults}, run: hungFromTheStart},
	{name: "AtRandom", run: cancelledAtRandom},
	{name: "AtRandomInLine", run: cancelledInLine},
	{name: "AtRandomHung", needs: []Ability{NetworkFaults}, run: cancelledHung},
}

// cleanedUp is how long a lock or a place of a call that was given up may stay at a
// healthy engine. It is far below the ttl that these checks use.
const cleanedUp = 3 * time.Second

// An acquire whose context has already ended takes nothing, or what it took is undone.
func endedBefore(c *trial) {
	a, key := c.open(), c.newKey()
	ctx, cancel := context.WithCancel(c.bounded())
	cancel()
	attempt := a.attempt(key)
	begin := time.Now()
	lease, err := a.Acquire(ctx, attempt)
	c.withinLocal("Acquire under a context that has ended", begin, overrun)
	switch {
	case lease != nil: // an engine without I/O need not look
		c.free(lease)
	case isHeld(err):
		c.Errorf("Acquire under a context that has ended says that a free key is held")
	case errors.Is(err, lock.ErrIndeterminate) || attempt.MayHaveRun:
		a.undone(attempt)
	}
	c.free(a.get(a.attempt(key)))
	l := c.locker()
	_, _, err = l.Acquire(ctx, c.policy(), key)
	c.is("an acquire under a context that has ended", err, context.Canceled)
	c.is("an acquire under a context that has ended", err, lock.ErrNotAcquired)
	c.mustAcquire(c.locker(), key, cleanedUp, "after an acquire under a context that had ended")
}

// S28: each call to a hung engine ends within 100 ms after its context. Acquire, Release and Undo return
// an error.
func hungEngine(c *trial) {
	a, faults := c.openFaulty()
	b, keys := c.open(), []string{c.newKey(), c.newKey(), c.newKey()}
	lease := a.get(a.attempt(keys[0]))
	other := b.get(b.attempt(keys[1]))
	faults.Silence()
	attempt := a.attempt(keys[2])
	var acquired error
	calls := map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error { _, acquired = a.Acquire(ctx, attempt); return acquired },
		"Renew":   func(ctx context.Context) error { return lease.Renew(ctx, c.long()) },
	}
	if n, ok := a.Backend.(driver.Notifier); ok {
		calls["Subscribe"] = func(ctx context.Context) error {
			s, err := n.Subscribe(ctx, a.attempt(keys[1]))
			if err == nil {
				s.Close()
				return errNotConfirmed
			}
			return err
		}
	}
	for name, call := range calls {
		c.endsWith(name, call)
	}
	c.endsWith("Release", func(ctx context.Context) error { return lease.Release(ctx, last(lease)) })
	mayHaveRun := errors.Is(acquired, lock.ErrIndeterminate) || attempt.MayHaveRun
	if mayHaveRun {
		c.endsWith("Undo", func(ctx context.Context) error { return a.Undo(ctx, attempt) })
	}
	if isHeld(acquired) || errors.Is(acquired, lock.ErrInvalid) || errors.Is(acquired, lock.ErrConflict) {
		c.Errorf("Acquire on a hung engine: %v; nobody can know that without an answer", acquired)
	}
	faults.Heal()
	c.released(lease)
	if mayHaveRun {
		a.undone(attempt)
	}
	for _, key := range []string{keys[0], keys[2]} {
		c.free(b.takeWithin(key, cleanedUp, "the engine answered again"))
	}
	c.free(other)
}

// givenUp is how long a check waits, twice, for a call that should have ended.
const givenUp = 3 * time.Second

// receiveWithin receives from calls, or reports false after limit has passed twice. It waits
// twice because the machine may have stopped this process during the first wait.
func receiveWithin[T any](calls <-chan T, limit time.Duration) (call T, ok bool) {
	for range 2 {
		select {
		case call = <-calls:
			return call, true
		case <-time.After(limit):
		}
	}
	return call, false
}

var errNotConfirmed = errors.New("the engine has not confirmed the subscription")

// endsWith requires that call, on a hung engine, ends with its context, and that its error is not
// ErrLost, because the engine has not said so. Renew may succeed, as a session may renew itself.
// Subscribe may succeed: an earlier subscription may serve it.
func (c *trial) endsWith(name string, call func(context.Context) error) {
	c.Helper()
	ctx, cancel := brief(200 * time.Millisecond)
	defer cancel()
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	err, returned := receiveWithin(done, givenUp)
	if !returned {
		c.Fatalf("%s on a hung engine has not returned %v after its context ended", name, 2*givenUp)
	}
	c.withinLocal(name+" on a hung engine, after its context ended,", begin.Add(200*time.Millisecond), overrun)
	switch {
	case errors.Is(err, errNotConfirmed):
	case err == nil && name != "Renew":
		c.Errorf("%s on a hung engine succeeded", name)
	case errors.Is(err, lock.ErrLost):
		c.Errorf("%s on a hung engine: %v; the engine has not said so", name, err)
	}
}

// The calls of a client that never reached its engine end as soon.
func hungFromTheStart(c *trial) {
	b, faults := c.h.OpenFaulty(c.T)
	faults.Silence()
	a := c.client(b)
	c.Cleanup(faults.Heal) // before it is closed
	key := c.newKey()
	attempt := a.attempt(key)
	var err error
	c.endsWith("Acquire", func(ctx context.Context) error { _, err = a.Acquire(ctx, attempt); return err })
	faults.Heal()
	if errors.Is(err, lock.ErrIndeterminate) || attempt.MayHaveRun {
		a.undone(attempt)
	}
	c.free(c.open().takeWithin(key, cleanedUp, "the engine could be reached"))
}

// giveUp acquires keys, each with a context that ends at a random instant.
func (c *trial) giveUp(l *lock.Locker, keys []string, within time.Duration) {
	c.Helper()
	calls := make(chan givenUpCall, len(keys))
	atOnce := make(chan struct{}, 8)
	for i, key := range keys {
		go func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			calls <- acquireBriefly(l, c.policy(), key, rand.N(within), i%2 == 0)
		}()
	}
	for range keys {
		call, returned := receiveWithin(calls, within+givenUp)
		if !returned {
			c.Fatalf("some acquires have not returned %v after their contexts ended", 2*givenUp)
		}
		if lag := c.meter.Since(call.end); call.over > overrun+lag {
			c.Errorf("an acquire returned %v after its context ended (%v for a busy machine)", call.over, lag)
		}
		if call.err != nil && (call.ended == nil || !errors.Is(call.err, call.ended)) {
			c.Errorf("an acquire whose context ended (%v): %v", call.ended, call.err)
		}
	}
}

type givenUpCall struct {
	end        time.Time     // when its context ended
	over       time.Duration // how much later the call returned
	err, ended error         // the error of the call, and of its context
}

// acquireBriefly acquires key under a context that is cancelled, or has a deadline,
// after d.
func acquireBriefly(l *lock.Locker, p *lock.Policy, key string, d time.Duration, cancelled bool) givenUpCall {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	if cancelled {
		cancel()
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(d, cancel)
	}
	defer cancel()
	end := time.Now().Add(d)
	_, held, err := l.Acquire(ctx, p, key)
	call := givenUpCall{end, time.Since(end), err, ctx.Err()}
	if err == nil {
		_ = finish(held) // if the engine is unavailable, the release continues in the background
	}
	return call
}

// allFree requires that all keys are free within cleanedUp.
func (c *trial) allFree(keys []string, why string) {
	c.Helper()
	b, begin := c.open(), time.Now()
	for _, key := range keys {
		c.free(b.takeWithin(key, max(cleanedUp-time.Since(begin), overrun), why))
	}
}

func (c *trial) newKeys(n int) (keys []string) {
	for range n {
		keys = append(keys, c.newKey())
	}
	return keys
}

func cancelledAtRandom(c *trial) {
	l := c.locker()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	keys := c.newKeys(60)
	c.giveUp(l, keys, 4*time.Millisecond)
	c.allFree(keys, "acquires were given up")
}

// A call that gives up in the queue leaves no place that others would wait for.
func cancelledInLine(c *trial) {
	l, b, key := c.locker(), c.open(), c.newKey()
	lease := b.get(b.attempt(key))
	var same []string
	for range 60 {
		same = append(same, key)
	}
	c.giveUp(l, same, 20*time.Millisecond)
	c.giveUp(l, same[:8], 200*time.Millisecond)
	c.free(lease)
	c.allFree(same[:2], "all waiters gave up")
	c.mustAcquire(l, key, pollLimit, "after all waiters gave up")
}

// The engine hangs, and is slow, while acquires are under way.
func cancelledHung(c *trial) {
	l, faults := c.lockerFaulty()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	var keys []string
	for _, fault := range []func(){faults.Silence, faults.LoseReplies, func() { faults.Delay(20 * time.Millisecond) }} {
		some := c.newKeys(24)
		keys = append(keys, some...)
		timer := time.AfterFunc(rand.N(2*time.Millisecond), fault)
		c.giveUp(l, some[:12], 4*time.Millisecond) // before, during, or after the start of the fault
		timer.Stop()
		fault()
		c.giveUp(l, some[12:], 60*time.Millisecond)
		faults.Heal()
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // clients may take their time to connect again
			_, held, err := l.Acquire(c.bounded(), c.policy(), c.newKey())
			if err == nil {
				_ = finish(held)
				break
			}
			if time.Since(begin) > c.timeout() {
				c.Fatalf("the Locker does not recover: %v", err)
			}
		}
	}
	c.allFree(keys, fmt.Sprintf("acquires with a ttl of %v were given up on an engine that hung", c.long()))
}
