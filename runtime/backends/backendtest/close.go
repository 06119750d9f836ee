package backendtest

import (
	"context"
	"slices"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Close gives back what is held and leaves nothing running.
var closing = []check{
	{name: "Backend", run: closedBackend},
	{name: "FreesHolds", run: closeFreesHolds},
	{name: "EndsWaits", run: closeEndsWaits},
	{name: "EndsCalls", needs: []Ability{NetworkFaults}, run: closeEndsCalls},
	{name: "Shared", run: closeOfShared},
	{name: "Hung", needs: []Ability{NetworkFaults}, run: closeOnHungEngine},
	{name: "HungWait", needs: []Ability{NetworkFaults}, run: closeEndsHungWait},
	{name: "Goroutines", alone: true, run: closeEndsGoroutines},
	{name: "GoroutinesHung", alone: true, needs: []Ability{NetworkFaults}, run: closeEndsGoroutinesHung},
}

// A Backend that is closed refuses at once with ErrClosed, or works on where it holds nothing
// open; to close it again is harmless.
func closedBackend(c *trial) {
	b := c.h.Open(c.T)
	a := &client{Backend: b, c: c, id: newID(c)}
	c.free(a.take(c.newKey()))
	for range 2 {
		if err := b.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	}
	ctx, cancel := brief(c.soon())
	defer cancel()
	begin := time.Now()
	attempt := a.attempt(c.newKey())
	lease, err := a.Acquire(ctx, attempt)
	c.within("Acquire after Close", begin, pollLimit)
	if err == nil {
		c.free(lease)
	} else {
		c.is("Acquire after Close", err, lock.ErrClosed)
	}
	if lease != nil && err != nil {
		c.Errorf("Acquire after Close returned a lease and the error %v", err)
	}
}

// Close waits for what is held as long as its context lets it; then it takes it
// away, and the next may have it at once.
func closeFreesHolds(c *trial) {
	l, key := c.locker(), c.newKey()
	ctx, held := c.enter(l, c.policy(), key)
	short, cancel := brief(50 * time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := l.Close(short); err == nil {
		c.Error("Close, whose context ended while a lock was held, says nothing of it")
	}
	c.within("Close", begin, time.Second+2*overrun)
	c.ended(ctx)
	c.lost("what the wrapper returns", finish(held))
	c.passesBy(c.locker(), key, pollLimit, "after Close")
}

func closeEndsWaits(c *trial) {
	l, other, key := c.locker(), c.locker(), c.newKey()
	_, held := c.enter(other, c.policy(), key)
	waiter := entering(c.bounded(), l, c.policy(), key)
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	c.closeLocker(l)
	c.within("Close, of a Locker that waited for a lock,", begin, time.Second+overrun)
	c.is("an acquire that waited", receive(c, "it to end", waiter).err, lock.ErrClosed)
	c.leave(held)
	c.passesBy(other, key, pollLimit, "after a waiter was closed")
}

// A call that waits for a hung engine ends with its Backend, also if its context does not.
func closeEndsCalls(c *trial) {
	a, faults := c.openFaulty()
	lease := a.take(c.newKey())
	attempt, other := a.attempt(c.newKey()), a.attempt(c.newKey())
	faults.Silence()
	answers := make(chan error, 3)
	go func() {
		_, err := a.Acquire(context.Background(), attempt)
		answers <- err
	}()
	go func() { answers <- lease.Renew(context.Background(), c.long()) }()
	go func() { answers <- a.Undo(context.Background(), other) }()
	time.Sleep(100 * time.Millisecond) // they are under way
	begin := time.Now()
	go func() { _ = a.Close() }() // what it says is asked by others
	for range cap(answers) {
		_ = receive(c, "a call under way to end after Close", answers) // whatever it says
	}
	c.withinAlone("a call under way, after Close,", begin, 2*time.Second+slackOfClose)
}

// A Backend that Lockers share lives as long as the last of them, if it says
// that it can be shared.
func closeOfShared(c *trial) {
	b := c.h.Open(c.T)
	if _, ok := b.(driver.Shared); !ok {
		c.closeLocker(c.lockerOn(b))
		return
	}
	one, two := c.lockerOn(b), c.lockerOn(b)
	key := c.newKey()
	ctx, held := c.enter(two, &lock.Policy{TTL: c.steady()}, key)
	begin := time.Now()
	c.closeLocker(one)
	time.Sleep(c.steady())
	c.leaveKept(ctx, begin, c.steady(), held)
	c.passesBy(two, key, pollLimit, "after the other Locker was closed")
}

// Close on a hung engine ends in time too: after ctx a second for what is to be
// undone, and one that the engine's client library may take to close.
func closeOnHungEngine(c *trial) {
	l, faults := c.lockerFaulty()
	c.enter(l, c.policy(), c.newKey())
	faults.Silence()
	ctx, cancel := brief(100 * time.Millisecond)
	defer cancel()
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- l.Close(ctx) }()
	if err := receive(c, "Close on a hung engine to end", done); err == nil {
		c.Error("Close of a Locker that holds a lock says nothing of it")
	}
	c.withinAlone("Close on a hung engine", begin, 100*time.Millisecond+2*time.Second+slackOfClose)
}

// Whoever waits is told of Close also while the engine does not answer its last attempt.
func closeEndsHungWait(c *trial) {
	other, key := c.locker(), c.newKey()
	_, held := c.enter(other, &lock.Policy{TTL: c.long()}, key)
	defer c.leave(held)
	l, faults := c.lockerFaulty()
	waiter := entering(c.bounded(), l, c.policy(), key)
	atEngine := func(w lock.WaitingCall) bool { return w.AtEngine } // Close does not cut a first attempt
	for ctx := c.bounded(); !slices.ContainsFunc(l.Snapshot().Waiters, atEngine); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			c.Fatal("no call waits at the engine")
		}
	}
	faults.Silence()
	time.Sleep(pollLimit + 100*time.Millisecond) // it asks again meanwhile
	ctx, cancel := brief(2 * time.Second)
	defer cancel()
	begin := time.Now()
	go func() { _ = l.Close(ctx) }() // an engine that is silent takes nothing back
	c.is("an acquire that waited", receive(c, "it to end", waiter).err, lock.ErrClosed)
	c.withinAlone("an acquire that waited, after Close,", begin, slackOfClose)
}

// slackOfClose is what a Close may take beside its waiting.
const slackOfClose = 400 * time.Millisecond

// use has l do all that starts something: hold, renew, wait, give up.
func (c *trial) use(l *lock.Locker) {
	c.Helper()
	b, key := c.open(), c.newKey()
	lease := b.get(b.attempt(key))
	ctx, cancel := context.WithCancel(c.bounded())
	gone := entering(ctx, l, c.policy(), c.newKey())
	c.leave(c.entered(gone).held)
	gone = entering(ctx, l, c.policy(), key)
	waiter := entering(c.bounded(), l, c.policy(), key)
	_, renewed := c.enter(l, c.shortPolicy(), c.newKey())
	time.Sleep(max(c.h.TTL/2, 100*time.Millisecond))
	cancel()
	if e := receive(c, "the waiter that gave up", gone); e.held != nil {
		c.Error("two hold one key")
	}
	c.free(lease)
	c.leave(c.entered(waiter).held)
	_ = finish(renewed) // lost, perhaps, on a machine that is overloaded
}

func closeEndsGoroutines(c *trial) {
	before := running()
	c.Run("use", func(t *testingT) {
		u := c.sub(t)
		u.use(u.locker())
	})
	before.settle(c, "after Close")
}

func closeEndsGoroutinesHung(c *trial) {
	before := running()
	c.Run("use", func(t *testingT) {
		u := c.sub(t)
		l, faults := u.lockerFaulty()
		u.use(l)
		_, held := u.enter(l, u.policy(), u.newKey())
		faults.Silence()
		_ = finish(held) // it goes on in the background, until Close
		ctx, cancel := brief(50 * time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
	})
	before.settle(c, "after Close on a hung engine")
}
