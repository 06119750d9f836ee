package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// overrun is how long a call may take to return after its context ended.
const overrun = 100 * time.Millisecond

// pollLimit is how long a waiter waits at most between two attempts.
const pollLimit = time.Second

// trial is one run of a check.
type trial struct {
	*testing.T
	*suite
	prefix string
	names  atomic.Int64
}

// keyCount counts checks, so that each has keys of its own.
type keyCount struct{ atomic.Int64 }

func newTrial(t *testing.T, s *suite) *trial {
	return &trial{T: t, suite: s, prefix: fmt.Sprintf("bt:%x:%x", os.Getpid(), runID+s.keys.Add(1))}
}

// runID makes the keys of this run differ from those of an earlier run whose process had
// the same ID.
var runID = time.Now().UnixNano() >> 16 & 0xffffff << 12

// newKey returns a key that no other check, nor another call, has.
func (c *trial) newKey() string {
	return c.h.Key(fmt.Sprintf("%s:%d", c.prefix, c.names.Add(1)))
}

// over is how long after its last renewal a lease of length TTL has surely ended at the
// engine.
func (c *trial) over() time.Duration { return c.h.TTL + c.h.Slack }

// bounded returns a context for calls that must not hang.
func (c *trial) bounded() context.Context { return c.endsAfter(c.timeout()) }

// contended returns a context for calls that must not hang, but wait for many critical sections of others.
func (c *trial) contended() context.Context { return c.endsAfter(4 * c.timeout()) }

func (c *trial) endsAfter(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), d)
	c.Cleanup(cancel)
	return ctx
}

// client is one Backend, as a process would use it.
type client struct {
	driver.Backend
	c     *trial
	id    string
	count atomic.Int64
}

// open returns a client. It is closed when the check ends.
func (c *trial) open() *client {
	c.Helper()
	return c.client(c.h.Open(c.T))
}

// openFaulty is like open, but the client's connection to the engine has Faults. They are healed
// before the client is closed.
func (c *trial) openFaulty() (*client, Faults) {
	c.Helper()
	b, faults := c.h.OpenFaulty(c.T)
	cl := c.client(b)
	c.Cleanup(faults.Heal)
	return cl, faults
}

func (c *trial) client(b driver.Backend) *client {
	c.Helper()
	if a, ok := b.(driver.Shared); ok {
		a.Attach()
	}
	c.Cleanup(func() {
		if err := b.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	})
	return &client{Backend: b, c: c, id: newID(c)}
}

// newID returns an ID for a client, in the form that a Locker uses.
func newID(c *trial) string {
	return fmt.Sprintf("%08x-0000-8000-8000-%012x", uint32(os.Getpid()), (runID+c.keys.Add(1))&0xffffffffffff)
}

// attempt returns a new acquisition of key, with a lease that does not end
// within the check.
func (cl *client) attempt(key string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: fmt.Sprintf("%s:%d", cl.id, cl.count.Add(1)), TTL: cl.c.long(), Tokens: 1}
}

// takeFor is take with a lease of length ttl.
func (cl *client) takeFor(key string, ttl time.Duration) driver.Lease {
	cl.c.Helper()
	a := cl.attempt(key)
	a.TTL = ttl
	return cl.get(a)
}

// take takes key, which must be free.
func (cl *client) take(key string) driver.Lease {
	cl.c.Helper()
	return cl.get(cl.attempt(key))
}

// get acquires a, which must succeed.
func (cl *client) get(a *driver.Acquisition) driver.Lease {
	cl.c.Helper()
	lease, err := cl.Acquire(cl.c.bounded(), a)
	if err != nil {
		cl.c.Fatalf("Acquire of %q, which is free: %v", a.Key, err)
	}
	if lease == nil {
		cl.c.Fatal("Acquire returned neither a lease nor an error")
	}
	return lease
}

// held requires that an attempt to take key is refused, because another acquisition holds it.
func (cl *client) held(key string) {
	cl.c.Helper()
	cl.refused(cl.attempt(key))
}

func (cl *client) refused(a *driver.Acquisition) {
	cl.c.Helper()
	lease, err := cl.Acquire(cl.c.bounded(), a)
	held, ok := errors.AsType[*driver.HeldError](err)
	switch {
	case lease != nil:
		cl.c.Fatalf("Acquire of %q, which is held, returned a lease (and the error %v)", a.Key, err)
	case !ok:
		cl.c.Fatalf("Acquire of %q, which is held, returned %v; it must be a *driver.HeldError", a.Key, err)
	case held.RetryAfter < 0 || held.RetryAfter > cl.c.long()+cl.c.h.Slack:
		cl.c.Errorf("HeldError.RetryAfter is %v; no lease lasts longer than %v here", held.RetryAfter, cl.c.long())
	}
}

// free releases l, which must still hold its key.
func (c *trial) free(l driver.Lease) {
	c.Helper()
	if err := l.Release(c.bounded(), last(l)); err != nil {
		c.Fatalf("Release of a lease that holds its key: %v", err)
	}
}

// lost requires that err wraps lock.ErrLost: the engine answered that the caller is not the owner.
func (c *trial) lost(what string, err error) {
	c.Helper()
	if !errors.Is(err, lock.ErrLost) {
		c.Errorf("%s: %v; it must wrap lock.ErrLost", what, err)
	}
}

// last returns the highest token of l's block.
func last(l driver.Lease) uint64 {
	first, n := l.Tokens()
	return first + n - 1
}

func first(l driver.Lease) uint64 {
	first, _ := l.Tokens()
	return first
}

// lag returns by how much a time measured since begin may be too long, because this process or
// the engine was late.
func (c *trial) lag(begin time.Time) time.Duration {
	return c.meter.Since(begin) + c.server.Since(begin)
}

// within requires that no more than limit has passed since begin, plus the time by which the
// machine or the engine was late.
func (c *trial) within(what string, begin time.Time, limit time.Duration) {
	c.Helper()
	c.withinOr(what, begin, limit, c.lag(begin))
}

// withinLocal is like within, for calls that must not wait for the engine, however late it is.
func (c *trial) withinLocal(what string, begin time.Time, limit time.Duration) {
	c.Helper()
	c.withinOr(what, begin, limit, c.meter.Since(begin))
}

func (c *trial) withinOr(what string, begin time.Time, limit, lag time.Duration) {
	c.Helper()
	if took := time.Since(begin); took > limit+lag {
		c.Errorf("%s took %v; at most %v is right (and %v for a busy machine)", what, took, limit, lag)
	}
}

// done reports an error if a call of Do, which began at begin, has returned err for no allowed reason.
func (c *trial) done(begin time.Time, err error) {
	c.Helper()
	if err != nil && !c.late(begin, err) {
		c.Errorf("Do: %v", err)
	}
}

// briefLease is how short the lease of a call may be that is granted the lock while it waits, unless
// its ttl is shorter still. The first renewal extends it.
const briefLease = 500 * time.Millisecond

// late reports whether err says that a lock was lost, and the machine has been late since begin for so
// long that a brief lease may have ended: as long as what is left of it when a call begins under it.
func (c *trial) late(begin time.Time, err error) bool {
	return errors.Is(err, lock.ErrLost) && c.lag(begin) >= briefLease/2
}

// eventually takes key when its holder's lease has ended by itself. The lease must end
// in time.
func (cl *client) eventually(key string) driver.Lease {
	cl.c.Helper()
	return cl.takeWithin(key, cl.c.over()+overrun, "its holder stopped renewing it")
}

// takeWithin takes key, which must be free within limit. It tries often, to measure when the key
// is free.
func (cl *client) takeWithin(key string, limit time.Duration, since string) driver.Lease {
	cl.c.Helper()
	begin := time.Now()
	for {
		lease, err := cl.Acquire(cl.c.bounded(), cl.attempt(key))
		switch waited := time.Since(begin); {
		case err == nil:
			return lease
		case !isHeld(err):
			cl.c.Fatalf("Acquire of %q: %v", key, err)
		case waited > limit+cl.c.lag(begin):
			cl.c.Fatalf("%q is still held %v after this: %s; at most %v is right", key, waited, since, limit)
		}
		time.Sleep(min(cl.c.h.TTL/20, 20*time.Millisecond))
	}
}

// undone calls Undo until it succeeds, as a Locker does.
func (cl *client) undone(a *driver.Acquisition) {
	cl.c.Helper()
	begin := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := cl.Undo(ctx, a)
		cancel()
		if err == nil {
			return
		}
		if time.Since(begin) > cl.c.timeout() {
			cl.c.Fatalf("Undo has failed for %v on a healthy network: %v", time.Since(begin), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// released calls Release until it has an answer, as a Locker does.
func (c *trial) released(l driver.Lease) {
	c.Helper()
	begin := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := l.Release(ctx, last(l))
		cancel()
		if err == nil || errors.Is(err, lock.ErrLost) {
			return
		}
		if time.Since(begin) > c.timeout() {
			c.Fatalf("Release has failed for %v on a healthy network: %v", time.Since(begin), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// brief returns a context that ends after d.
func brief(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// is requires that err wraps kind.
func (c *trial) is(what string, err, kind error) {
	c.Helper()
	if !errors.Is(err, kind) {
		c.Errorf("%s: %v; it must wrap %q", what, err, kind)
	}
}
