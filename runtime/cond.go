package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Cond is a condition variable: calls that hold one lock wait in it until another call,
// in any process, has changed what they wait for. Make it with [NewCond]. Its methods may
// be called from any number of goroutines, each under a context that owns the lock on its
// key by a mutex, a fair lock or the write side.
//
//	for !ready() {
//		if err := cond.Wait(ctx); err != nil {
//			return err
//		}
//	}
//
// A Wait may return without a signal: look again, in a loop.
type Cond struct {
	locker  *Locker
	backend string
	key     string
}

// conditionPrefix and the lock's key make the key of its condition.
const conditionPrefix = "lockgen:condition:"

var (
	errGivenUp    = errors.New("given up while the method waits for a condition")
	errNotRetaken = errors.New("not acquired again after the wait for a condition")
)

// NewCond returns the condition of the lock on key. backend is the name of the backend that
// the lock is at, the Locker's own unless given. All processes that wait and signal share
// the condition of a key. It panics with an [*Error] if l is nil, or the backend is not there
// or has no conditions.
func NewCond(l *Locker, key string, backend ...string) *Cond {
	if l == nil {
		panic(&Error{Op: "cond", Key: key, Err: invalidf("the Locker is nil; make one with lock.New")})
	}
	c := &Cond{locker: l, key: key}
	for _, name := range backend {
		c.backend = name
	}
	b := l.backend(c.backend)
	if b == nil {
		panic(&Error{Op: "cond", Key: key, Err: l.noBackend(c.backend)})
	}
	k, ok := b.(driver.Kinded)
	if _, calls := b.(driver.Caller); !ok || !calls || k.Kinds()&driver.Condition == 0 {
		panic(&Error{Op: "cond", Key: key, Err: invalidf("the backend %T has no conditions", b)})
	}
	return c
}

// Wait releases the lock, waits for [Cond.Signal] or [Cond.Broadcast], and takes the lock again
// before it returns. A signal that comes after Wait has begun, and before the lock is released,
// is not lost. Signals go to the waiters in the order in which they began. While Wait waits,
// Check says [ErrLost] for the context; after it the hold has a new token. Re-entered calls
// around it release the lock as well.
//
// If ctx ends, Wait takes the lock again and returns the context's error. It blocks until the
// lock is free, or until 100 ms after the context of the locked method has ended. If the lock
// can't be had by then, or was lost before, the error wraps [ErrLost], the method's context ends,
// and a signal that Wait has received goes to the next waiter. Wait keeps the call's other locks,
// so this may be a deadlock: then the error wraps [ErrDeadlock] too. [ErrInvalid] says that ctx
// does not own the lock. After any other error, such as [ErrUnavailable], the lock is held: it
// was not released, or was taken again.
func (c *Cond) Wait(ctx context.Context) error {
	f, err := c.owner(ctx)
	if err != nil {
		return c.fail("wait", err)
	}
	w, err := c.enqueue(ctx)
	if err != nil {
		return c.fail("wait", err)
	}
	old := f.hold()
	if err := c.giveUp(ctx, old); err != nil {
		w.leave()
		return c.fail("wait", err)
	}
	called := w.wait(ctx)
	s := c.locker.shard(c.key)
	s.active.Add(1) // Close waits for this call also if the method returns meanwhile
	defer c.locker.leave(s)
	if err := c.retake(f, owned(ctx), s, old); err != nil {
		if called == nil {
			w.passOn()
		}
		return c.fail("wait", errors.Join(because(ErrLost, err), called))
	}
	if called != nil {
		return c.fail("wait", called)
	}
	return nil
}

// Signal wakes the call that has waited longest, if one waits. The context must own the lock.
// Signal blocks until the engine answers or ctx ends.
func (c *Cond) Signal(ctx context.Context) error { return c.call(ctx, "signal", 1) }

// Broadcast wakes all calls that wait. Otherwise it is like [Cond.Signal].
func (c *Cond) Broadcast(ctx context.Context) error { return c.call(ctx, "broadcast", -1) }

func (c *Cond) call(ctx context.Context, op string, n int) error {
	if _, err := c.owner(ctx); err != nil {
		return c.fail(op, err)
	}
	b := c.locker.backend(c.backend)
	err := b.(driver.Caller).Call(ctx, c.acquisition(), n)
	if err != nil {
		return c.fail(op, because(ErrUnavailable, driver.Locate(b, err)))
	}
	return nil
}

func (c *Cond) fail(op string, err error) error { return &Error{Op: op, Key: c.key, Err: err} }

// owner returns the frame under which ctx owns the lock.
func (c *Cond) owner(ctx context.Context) (*frame, error) {
	f := owned(ctx).find(c.locker, c.backend, c.key)
	if f == nil {
		return nil, invalidf("the context is not under the lock on %s", c.key)
	}
	h := f.hold()
	if h.locker == nil {
		return nil, invalidf("the lock on %s is the caller's, by whom it was delegated; only the caller can wait and signal", c.key)
	}
	if h.policy.Read || h.policy.Permits > 0 || h.lease.downgraded.Load() {
		return nil, invalidf("a condition needs a lock that excludes all others: a mutex, fair or write")
	}
	if err := h.check(); err != nil {
		return nil, because(ErrLost, err)
	}
	return f, nil
}

func (c *Cond) acquisition() *driver.Acquisition {
	key := conditionPrefix + c.key
	s := c.locker.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &driver.Acquisition{
		Key: c.locker.prefix + key, ID: c.locker.newID(c.locker.numberLocked(s)), TTL: DefaultTTL, Tokens: 1, Queue: true,
		Mode: driver.Mode{Kind: driver.Condition},
	}
}

// condWaiter is one call of Wait in the engine's queue of the condition.
type condWaiter struct {
	op   acquireOp
	held error // the engine's answer that the call stands in the queue
}

// enqueue puts a waiter into the engine's queue of the condition.
func (c *Cond) enqueue(ctx context.Context) (*condWaiter, error) {
	a, l := c.acquisition(), c.locker
	e := &entry{id: entryID{backend: c.backend, key: a.Key, kind: driver.Condition}, shard: l.shard(a.Key), backend: l.backend(c.backend)}
	e.waitQueue = &e.ownQueue
	w := &condWaiter{op: acquireOp{locker: l, entry: e, hold: &hold{locker: l, policy: defaultPolicy, waited: true}, ctx: ctx, acquisition: a}}
	lease, err := e.backend.Acquire(ctx, a)
	if w.held = err; isHeld(err) {
		return w, nil
	}
	if err == nil { // signaled before it waits: an earlier attempt stood in the queue
		w.acknowledge(lease)
		return nil, errors.New("the engine has signaled a call that did not wait yet")
	}
	w.leave()
	return nil, w.op.explain(err)
}

// wait returns nil once the condition was signaled.
func (w *condWaiter) wait(ctx context.Context) error {
	lease, err := w.op.wait(ctx, w.held)
	if s := w.op.entry.subscription; s != nil {
		s.Close()
	}
	if err == nil {
		w.acknowledge(lease)
		return nil
	}
	w.leave()
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	return w.op.explain(err)
}

// acknowledge tells the engine that the signal was received.
func (w *condWaiter) acknowledge(lease driver.Lease) {
	first, _ := lease.Tokens()
	w.op.locker.cleanup.add(w.op.entry.id.backend, time.Second, func(ctx context.Context) error {
		if err := lease.Release(ctx, first); !isLost(err) {
			return err
		}
		return nil
	})
}

// passOn wakes the next waiter in place of w, which was signaled and can't have the lock.
func (w *condWaiter) passOn() {
	a := w.op.acquisition
	w.op.locker.cleanup.add(w.op.entry.id.backend, a.TTL, func(ctx context.Context) error {
		return w.op.entry.backend.(driver.Caller).Call(ctx, a, 1)
	})
}

// leave gives up the place in the queue. A signal that comes at that moment goes to the next.
func (w *condWaiter) leave() {
	w.op.locker.undo(w.op.entry, w.op.acquisition, w.op.acquisition.TTL)
}

// giveUp releases the lease of old. The method's context does not end. If two calls want to
// give the lock up, only one may, because each would take it again.
func (c *Cond) giveUp(ctx context.Context, old *hold) error {
	if !old.lost.CompareAndSwap(nil, &errGivenUp) {
		return because(ErrLost, old.lostCause())
	}
	now := time.Now()
	err := c.locker.handOnOrFree(ctx, old, now)
	if cause := old.lostCause(); cause != errGivenUp {
		return because(ErrLost, cause)
	}
	if isLost(err) {
		old.lost.Store(&errNotOwner)
		old.endLost(errNotOwner)
		return because(ErrLost, errNotOwner)
	}
	old.observe(Released, old.heldFor(driver.At(now)), nil)
	return nil
}

// retake takes the lock again for f and the frames around it, whose hold was old. Meanwhile
// the call keeps the other locks of the chain that begins at innermost.
func (c *Cond) retake(f, innermost *frame, s *shard, old *hold) error {
	p := *old.policy
	p.Try, p.Wait, p.Queue = false, 0, 0
	method := old.method.Load()
	again := context.Context(method)
	if method.Err() != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(again), releaseGrace)
		defer cancel()
		again = bounded
	}
	l, called := c.locker, c.locker.nowIfObserved()
	first := f.outermost()
	if first.closed.Load() {
		return errReturned
	}
	if innermost == f {
		innermost = f.outer
	}
	h, err := l.take(again, innermost, s, &p, c.key, time.Time{})
	if err != nil {
		old.lost.Store(&errNotRetaken)
		old.endLost(errNotRetaken)
		return because(errNotRetaken, l.reject(again, &p, c.key, called, err))
	}
	for g := f; g != nil; g = g.outer {
		g.current.CompareAndSwap(old, h)
	}
	h.setMethod(method)
	l.observeHold(again, h, called)
	if first.closed.Load() { // the release may have found old: nobody else gives h back
		_ = c.giveUp(endedContext, h)
		return errReturned
	}
	return nil
}
