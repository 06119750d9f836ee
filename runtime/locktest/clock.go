package locktest

import (
	"context"
	"sync"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Advance lets d pass at once: leases end, renewals are sent when they are due, and answers that
// [Engine.Delay] holds up arrive. When Advance returns, all of this has happened, and the contexts
// of locks that were lost have ended. A method whose lock is renewed keeps it, however long d is.
//
// In a bubble of testing/synctest Advance calls time.Sleep(d) and synctest.Wait().
// Elsewhere it moves only the clock of e and of its leases (see the package comment).
func (e *Engine) Advance(d time.Duration) {
	if inBubble() {
		time.Sleep(d)
		synctest.Wait()
		return
	}
	for _, named := range e.backends() {
		named.Advance(d)
	}
	e.advance.Lock()
	defer e.advance.Unlock()
	for d > 0 {
		e.mu.Lock()
		step := e.maxStep(d)
		e.move(step)
		e.mu.Unlock()
		d -= step
	}
}

// maxStep is how far the clock may move before the Lockers must look at it: a quarter of
// the time between two renewals, or until an answer arrives.
func (e *Engine) maxStep(d time.Duration) time.Duration {
	for l := range e.watched {
		d = min(d, max(l.ttl/12, 1))
	}
	for a := range e.clock.underway {
		if left := e.clock.left(a.due); left > 0 {
			d = min(d, left)
		}
	}
	return d
}

// move sets the clock forward by d. The holders are told before the engine gives their
// locks to others.
func (e *Engine) move(d time.Duration) {
	c := &e.clock
	c.ahead += d
	c.moving = true
	c.resetTimers()
	for l := range e.watched {
		c.look(l)
	}
	for c.busy() {
		c.changed.Wait() // releases the mutex while it waits
	}
	c.moving = false
	for key := range e.holders {
		e.freeIfOver(key)
	}
}

// clock is the real clock plus what Advance has added.
type clock struct {
	mu       *sync.Mutex // the engine's; it guards the rest
	ahead    time.Duration
	moving   bool
	underway map[*answer]struct{}
	looking  map[*lease]struct{} // leases at which a Locker is looking
	changed  *sync.Cond
}

// answer is an answer that is under way.
type answer struct {
	clock *clock
	due   driver.Instant
	timer *time.Timer
	lease *lease // the lease whose renewal it answers, or nil
}

func (c *clock) init(mu *sync.Mutex) {
	c.mu = mu
	c.underway = map[*answer]struct{}{}
	c.looking = map[*lease]struct{}{}
	c.changed = sync.NewCond(mu)
}

func (c *clock) now() driver.Instant { return driver.Now().Add(c.ahead) }

// real converts the instant i of the engine's clock to the real clock.
func (c *clock) real(i driver.Instant) driver.Instant { return i.Add(-c.ahead) }

func (c *clock) left(i driver.Instant) time.Duration { return c.real(i).Left() }

// send returns an answer that arrives after d, or nil if d is 0. If it answers a renewal, l is
// the lease.
func (c *clock) send(d time.Duration, l *lease) *answer {
	if d <= 0 {
		return nil
	}
	a := &answer{clock: c, due: c.now().Add(d), timer: time.NewTimer(d), lease: l}
	c.underway[a] = struct{}{}
	if l != nil {
		l.unanswered++
		c.changed.Broadcast()
	}
	return a
}

// await returns when a arrives, or with an error when ctx ends before.
func (a *answer) await(ctx context.Context) error {
	if a == nil {
		return nil
	}
	defer func() {
		a.clock.mu.Lock()
		defer a.clock.mu.Unlock()
		a.timer.Stop()
		a.arrive()
	}()
	select {
	case <-a.timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *answer) arrive() {
	if _, underway := a.clock.underway[a]; !underway {
		return
	}
	delete(a.clock.underway, a)
	if a.lease != nil {
		a.lease.unanswered--
	}
}

// resetTimers sets the timers of the answers after the clock was moved.
func (c *clock) resetTimers() {
	for a := range c.underway {
		left := c.left(a.due)
		a.timer.Reset(max(left, 0))
		if left <= 0 {
			a.arrive()
		}
	}
}

// look makes the Locker look at l.
func (c *clock) look(l *lease) {
	l.looks++
	c.looking[l] = struct{}{}
	go func() {
		l.look()
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.looks--; l.looks == 0 {
			delete(c.looking, l)
		}
		c.changed.Broadcast()
	}()
}

// busy reports whether a Locker still looks at a lease. A Locker that waits for the
// answer to a renewal does not count, because the answer comes only when the clock moves.
func (c *clock) busy() bool {
	for l := range c.looking {
		if l.looks > l.unanswered {
			return true
		}
	}
	return false
}

// inBubble reports whether the caller runs in a bubble of testing/synctest:
// the clock there has no monotonic reading.
func inBubble() bool {
	now := time.Now()
	return now == now.Round(0)
}
