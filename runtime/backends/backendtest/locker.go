package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// locker returns a Locker with a Backend of its own. For the engine it is a process of its
// own. It is closed when the check ends.
func (c *trial) locker() *lock.Locker {
	c.Helper()
	return c.lockerOn(c.h.Open(c.T))
}

// lockerFaulty is like locker, but its connection to the engine has Faults.
func (c *trial) lockerFaulty() (*lock.Locker, Faults) {
	c.Helper()
	b, faults := c.h.OpenFaulty(c.T)
	l := c.lockerOn(b)
	c.Cleanup(faults.Heal)
	return l, faults
}

func (c *trial) lockerOn(b driver.Backend) *lock.Locker {
	l := lock.New(b, nil)
	c.Cleanup(func() { c.closeLocker(l) })
	return l
}

func (c *trial) closeLocker(l *lock.Locker) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout())
	defer cancel()
	if err := l.Close(ctx); err != nil {
		c.Errorf("Close of a Locker: %v", err)
	}
}

// enter takes key with l.
func (c *trial) enter(l *lock.Locker, p *lock.Policy, key string) (context.Context, *lock.Hold) {
	c.Helper()
	ctx, held, err := l.Acquire(c.bounded(), p, key)
	if err != nil {
		c.Fatalf("acquire with a Locker: %v", err)
	}
	return ctx, held
}

// finish releases held as a wrapper does, and returns the error that the wrapper's caller would get.
func finish(held *lock.Hold) (err error) {
	held.Release(&err)
	return err
}

// leave releases held, and reports an error if it was lost. It may have been lost if its lease was
// brief and the machine was late: then its deadline has passed.
func (c *trial) leave(held *lock.Hold) {
	c.Helper()
	if held == nil {
		return // the acquire failed, and that was reported
	}
	begin, deadline := time.Now().Add(-time.Second), held.Deadline()
	if err := finish(held); err != nil && (time.Now().Before(deadline) || !c.late(begin, err)) {
		c.Errorf("release with a Locker: %v", err)
	}
}

// leaveKept releases all, which were renewed since begin with a lease of ttl. It reports an error if
// they were lost, unless the machine was late by half of ttl.
func (c *trial) leaveKept(ctx context.Context, begin time.Time, ttl time.Duration, all ...*lock.Hold) {
	c.Helper()
	leave := c.leave
	if err := lock.Check(ctx); err != nil {
		leave = func(held *lock.Hold) { _ = finish(held) }
		if lag := c.lag(begin); lag < ttl/2 {
			c.Errorf("a lock that had to be renewed, after %v: %v (%v for a busy machine)", time.Since(begin), err, lag)
		}
	}
	for _, held := range slices.Backward(all) {
		leave(held)
	}
}

func isHeld(err error) bool {
	_, ok := errors.AsType[*driver.HeldError](err)
	return ok
}

// atLeast returns d, or the nearest length of a lease that the harness allows.
func (c *trial) atLeast(d time.Duration) time.Duration {
	d = max(c.h.TTL, d)
	if c.h.MaxTTL > 0 {
		d = min(d, c.h.MaxTTL)
	}
	return d
}

// long is the length of a lease that does not end within a check. If its key is free before its
// end, somebody has freed it.
func (c *trial) long() time.Duration { return c.atLeast(time.Minute) }

// steady is the length of a lease that even an overloaded machine renews in time. Checks of
// renewal use it.
func (c *trial) steady() time.Duration { return c.atLeast(2 * time.Second) }

func (c *trial) policy() *lock.Policy      { return &lock.Policy{TTL: c.long()} }
func (c *trial) shortPolicy() *lock.Policy { return &lock.Policy{TTL: c.h.TTL} }

// entering runs an acquire in the background.
func entering(ctx context.Context, l *lock.Locker, p *lock.Policy, key string) <-chan entered {
	done := make(chan entered, 1)
	go func() {
		inner, held, err := l.Acquire(ctx, p, key)
		done <- entered{inner, held, err, time.Now()}
	}()
	return done
}

type entered struct {
	ctx  context.Context
	held *lock.Hold
	err  error
	at   time.Time
}

// entered waits for an acquire that must succeed.
func (c *trial) entered(from <-chan entered) entered {
	c.Helper()
	e := receive(c, "an acquire to end", from)
	if e.err != nil {
		c.Fatalf("acquire with a Locker: %v", e.err)
	}
	return e
}

// mustAcquire requires that l can acquire key within limit.
func (c *trial) mustAcquire(l *lock.Locker, key string, limit time.Duration, why string) {
	c.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit+c.timeout())
	defer cancel()
	_, held, err := l.Acquire(ctx, c.policy(), key)
	if err != nil {
		c.Fatalf("%s: a new acquire of %q: %v", why, key, err)
	}
	c.within(why+": a new acquire", begin, limit)
	c.leave(held)
}

// ended waits until ctx, the context of a method that runs under a lock, has ended because the
// lock was lost.
func (c *trial) ended(ctx context.Context) {
	c.Helper()
	receive(c, "the method's context to end", ctx.Done())
	c.lost("the cause of the method's context", context.Cause(ctx))
	c.lost("lock.Check", lock.Check(ctx))
}

func receive[T any](c *trial, what string, from <-chan T) (v T) {
	c.Helper()
	select {
	case v = <-from:
	case <-time.After(c.timeout()):
		c.Fatalf("waited %v for %s", c.timeout(), what)
	}
	return v
}

// isUnanswered reports whether err is an error of an acquire that had no answer.
func isUnanswered(err error) bool {
	return errors.Is(err, lock.ErrIndeterminate) || errors.Is(err, lock.ErrUnavailable)
}
