package backendtest

import (
	"context"
	"slices"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Close releases all locks and leaves no goroutine running.
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

// A closed Backend refuses at once with ErrClosed. A Backend that holds nothing open may
// continue to work. A second Close is harmless.
func closedBackend(c *trial) {
	b := c.h.Open(c.T)
	a := &client{Backend: b, c: c, id: newID(c)}
	c.free(a.take(c.newKey()))
	for range 2 {
		if err := b.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	}
	ctx, cancel := brief(c.timeout())
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

// Close waits for holds until its context ends. Then it ends them, and another process can
// acquire the key at once.
func closeFreesHolds(c *trial) {
	l, key := c.locker(), c.newKey()
	ctx, held := c.enter(l, c.policy(), key)
	short, cancel := brief(50 * time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := l.Close(short); err == nil {
		c.Error("Close, whose context ended while a lock was held, returned no error")
	}
	c.within("Close", begin, time.Second+2*overrun)
	c.ended(ctx)
	c.lost("what the wrapper returns", finish(held))
	c.mustAcquire(c.locker(), key, pollLimit, "after Close")
}

func closeEndsWaits(c *trial) {
	l, other, key := c.locker(), c.locker(), c.newKey()
	_, held := c.enter(other, c.policy(), key)
	waiter := entering(c.bounded(), l, c.policy(), key)
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	c.closeLocker(l)
	c.within("Close, of a Locker that waited for a lock,", begin, time.Second+overrun)
	c.is("an acquire that waited", receive(c, "the waiting acquire to end", waiter).err, lock.ErrClosed)
	c.leave(held)
	c.mustAcquire(other, key, pollLimit, "after a waiter was closed")
}

// A call that waits for a hung engine ends when its Backend is closed, even if its context has not ended.
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
	time.Sleep(100 * time.Millisecond) // then the calls are under way
	begin := time.Now()
	go func() { _ = a.Close() }() // other checks look at its error
	for range cap(answers) {
		_ = receive(c, "a call under way to end after Close", answers) // any error is right
	}
	c.withinLocal("a call under way, after Close,", begin, 2*time.Second+slackOfClose)
}

// A Backend that implements driver.Shared stays open until the last of its Lockers is closed.
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
	c.mustAcquire(two, key, pollLimit, "after the other Locker was closed")
}

// Close on a hung engine ends in time too. After ctx has ended, it may take one second for
// undoing, and one second for the engine's client library to close.
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
		c.Error("Close of a Locker that holds a lock returned no error")
	}
	c.withinLocal("Close on a hung engine", begin, 100*time.Millisecond+2*time.Second+slackOfClose)
}

// Close ends a call that waits, even while the engine does not answer the call's last attempt.
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
	time.Sleep(pollLimit + 100*time.Millisecond) // the waiting call makes another attempt meanwhile
	ctx, cancel := brief(2 * time.Second)
	defer cancel()
	begin := time.Now()
	go func() { _ = l.Close(ctx) }() // it fails: a silent engine confirms no undo
	c.is("an acquire that waited", receive(c, "the waiting acquire to end", waiter).err, lock.ErrClosed)
	c.withinLocal("an acquire that waited, after Close,", begin, slackOfClose)
}

// slackOfClose is how long a Close may take in addition to the times that it waits.
const slackOfClose = 400 * time.Millisecond

// use has l hold, renew, wait and give up, because each of these may start goroutines.
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
	_ = finish(renewed) // an overloaded machine may have lost it
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
		_ = finish(held) // the release continues in the background until Close
		ctx, cancel := brief(50 * time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
	})
	before.settle(c, "after Close on a hung engine")
}
