package backendtest

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// Calls wait inside of a lock until another call, of any process, tells them.
var conditions = []check{
	{name: "Order", needs: []Ability{FairLocks}, run: conditionOrder},
	{name: "Broadcast", needs: []Ability{FairLocks}, run: conditionBroadcast},
	{name: "GivesUp", needs: []Ability{FairLocks}, run: conditionGivesUp},
}

// waitsIn has l take key and wait in its condition. It returns when it waits; the channel has
// who was called, by n.
func (c *trial) waitsIn(l *lock.Locker, key string, n int, called chan<- int) {
	waiting, begin := make(chan struct{}), time.Now()
	go func() {
		err := l.Do(c.bounded(), c.policy(), key, func(ctx context.Context) error {
			close(waiting)
			if err := lock.NewCond(l, key).Wait(ctx); err != nil {
				return err
			}
			called <- n
			return lock.Check(ctx)
		})
		if err != nil && !c.late(begin, err) {
			c.Errorf("Wait of call %d: %v", n, err)
			called <- -1
		}
	}()
	receive(c, "a call to have its lock", waiting)
	// Its lock is free when it waits.
	if err := l.Do(c.bounded(), c.policy(), key, func(context.Context) error { return nil }); err != nil && !c.late(begin, err) {
		c.Errorf("the lock that a call waits under: %v", err)
	}
}

// tells calls those that wait, under the lock.
func (c *trial) tells(l *lock.Locker, key string, call func(*lock.Cond, context.Context) error) {
	c.Helper()
	err := l.Do(c.bounded(), c.policy(), key, func(ctx context.Context) error { return call(lock.NewCond(l, key), ctx) })
	if err != nil {
		c.Errorf("a call of a condition: %v", err)
	}
}

// next returns who was called next.
func (c *trial) next(called <-chan int) int {
	select {
	case n := <-called:
		return n
	case <-time.After(c.soon()):
		c.Fatal("a call is lost: nobody has heard it")
		return -1
	}
}

// heardIn is within what time a call must be heard to go to nobody else: see driver.Caller.
const heardIn = 400 * time.Millisecond

// Each Signal calls one, in the order in which they began to wait, whose process it ever is.
func conditionOrder(c *trial) {
	lockers := []*lock.Locker{c.locker(), c.locker()}
	key, called, came := c.newKey(), make(chan int, 4), time.Now()
	for n := range 4 {
		c.waitsIn(lockers[n%2], key, n, called)
	}
	for n := range 4 {
		begin := time.Now()
		c.tells(lockers[(n/2)%2], key, (*lock.Cond).Signal)
		got := c.next(called)
		if took := time.Since(begin); took > heardIn {
			c.Logf("the engine or the machine is slow: a Signal was heard after %v, and may have gone to the next", took)
			c.tells(lockers[0], key, (*lock.Cond).Broadcast)
			for range 3 - n {
				c.next(called)
			}
			return
		}
		if got != n && !c.placesEnd(came) {
			c.Errorf("call %d has heard the Signal %d", got, n)
		}
		if len(called) > 0 {
			c.Error("one Signal has called two")
		}
	}
}

// A Broadcast calls all, and one after the other they have the lock.
func conditionBroadcast(c *trial) {
	lockers := []*lock.Locker{c.locker(), c.locker()}
	key, called := c.newKey(), make(chan int, 4)
	for n := range 4 {
		c.waitsIn(lockers[n%2], key, n, called)
	}
	c.tells(lockers[0], key, (*lock.Cond).Broadcast)
	for range 4 {
		c.next(called)
	}
}

// A Wait whose context ends has the lock again when it returns, and takes nobody's call.
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
	called := make(chan int, 1)
	c.waitsIn(l, key, 1, called)
	c.tells(c.locker(), key, (*lock.Cond).Signal)
	c.next(called)
}
