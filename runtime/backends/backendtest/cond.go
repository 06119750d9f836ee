package backendtest

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// Calls wait for a condition, under a lock, until another call of any process signals it.
var conditions = []check{
	{name: "Order", needs: []Ability{FairLocks}, run: conditionOrder},
	{name: "Broadcast", needs: []Ability{FairLocks}, run: conditionBroadcast},
	{name: "GivesUp", needs: []Ability{FairLocks}, run: conditionGivesUp},
}

// waitsIn has l take key and wait for its condition. waitsIn returns when the call waits. The call
// sends n to woken when a signal wakes it.
func (c *trial) waitsIn(l *lock.Locker, key string, n int, woken chan<- int) {
	waiting, begin := make(chan struct{}), time.Now()
	go func() {
		err := l.Do(c.bounded(), c.policy(), key, func(ctx context.Context) error {
			close(waiting)
			if err := lock.NewCond(l, key).Wait(ctx); err != nil {
				return err
			}
			woken <- n
			return lock.Check(ctx)
		})
		if err != nil && !c.late(begin, err) {
			c.Errorf("Wait of call %d: %v", n, err)
			woken <- -1
		}
	}()
	receive(c, "a call to have its lock", waiting)
	// The lock is free while the call waits.
	if err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error { return nil }); err != nil && !c.late(begin, err) {
		c.Errorf("the lock of a call that waits for a condition: %v", err)
	}
}

// signals runs call, which is Signal or Broadcast, under the lock.
func (c *trial) signals(l *lock.Locker, key string, call func(*lock.Cond, context.Context) error) {
	c.Helper()
	err := l.Do(c.bounded(), c.policy(), key, func(ctx context.Context) error { return call(lock.NewCond(l, key), ctx) })
	if err != nil {
		c.Errorf("Signal or Broadcast: %v", err)
	}
}

// nextWoken returns the number of the call that woke next.
func (c *trial) nextWoken(woken <-chan int) int {
	select {
	case n := <-woken:
		return n
	case <-time.After(c.timeout()):
		c.Fatal("a signal was lost: it woke no call")
		return -1
	}
}

// heardIn is the time within which a signal must wake a call, so that the engine does not pass
// the signal on to the next call: see driver.Caller.
const heardIn = 400 * time.Millisecond

// Each Signal wakes one call, in the order in which they began to wait, across all processes.
func conditionOrder(c *trial) {
	lockers := []*lock.Locker{c.locker(), c.locker()}
	key, woken, began := c.newKey(), make(chan int, 4), time.Now()
	for n := range 4 {
		c.waitsIn(lockers[n%2], key, n, woken)
	}
	for n := range 4 {
		begin := time.Now()
		c.signals(lockers[(n/2)%2], key, (*lock.Cond).Signal)
		got := c.nextWoken(woken)
		if took := time.Since(begin); took > heardIn {
			c.Logf("the engine or the machine is slow: a Signal took %v to wake a call, and may have been passed on to the next call", took)
			c.signals(lockers[0], key, (*lock.Cond).Broadcast)
			for range 3 - n {
				c.nextWoken(woken)
			}
			return
		}
		if got != n && !c.mayLosePlace(began) {
			c.Errorf("Signal %d woke call %d", n, got)
		}
		if len(woken) > 0 {
			c.Error("one Signal woke two calls")
		}
	}
}

// A Broadcast wakes all calls, and they take the lock one after the other.
func conditionBroadcast(c *trial) {
	lockers := []*lock.Locker{c.locker(), c.locker()}
	key, woken := c.newKey(), make(chan int, 4)
	for n := range 4 {
		c.waitsIn(lockers[n%2], key, n, woken)
	}
	c.signals(lockers[0], key, (*lock.Cond).Broadcast)
	for range 4 {
		c.nextWoken(woken)
	}
}

// A Wait whose context ends has the lock again when it returns, and takes no signal from others.
func conditionGivesUp(c *trial) {
	l, key := c.locker(), c.newKey()
	ctx, held := c.enter(l, c.policy(), key)
	limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := lock.NewCond(l, key).Wait(limited); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrLost) {
		c.Errorf("Wait after its context had ended: %v", err)
	}
	if err := lock.Check(ctx); err != nil {
		c.Errorf("Check after a Wait whose context has ended: %v", err)
	}
	c.leave(held)
	woken := make(chan int, 1)
	c.waitsIn(l, key, 1, woken)
	c.signals(c.locker(), key, (*lock.Cond).Signal)
	c.nextWoken(woken)
}
