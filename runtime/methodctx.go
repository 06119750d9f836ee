package lock

import (
	"context"
	"runtime/trace"
	"sync"
	"time"
)

// methodContext is the caller's context that also ends when the lock is released or
// lost. A context of package context is made for it when Done is first called, so
// that a short method costs no channel and no closure.
type methodContext struct {
	caller context.Context
	task   *trace.Task // or nil

	mu     sync.Mutex
	inner  context.Context // nil until asked for
	cancel context.CancelCauseFunc
	cause  error // why it ended, or nil
}

// end ends c for cause. A context that has ended keeps its cause.
func (c *methodContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task != nil {
		c.task.End()
		c.task = nil
	}
	if c.cause != nil || c.caller.Err() != nil {
		return
	}
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

func (c *methodContext) started() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
	case c.cause != nil: // which stays the cause if the caller's context has ended since
		c.inner, c.cancel = context.WithCancelCause(context.WithoutCancel(c.caller))
		c.cancel(c.cause)
	default:
		c.inner, c.cancel = context.WithCancelCause(c.caller)
	}
	return c.inner
}

func (c *methodContext) Deadline() (time.Time, bool) { return c.caller.Deadline() }

func (c *methodContext) Done() <-chan struct{} { return c.started().Done() }

func (c *methodContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.cause != nil:
		return context.Canceled
	}
	return c.caller.Err()
}

// Value returns the caller's value. Package context asks with a key of its own for
// the context that it can link to: that is the inner one.
func (c *methodContext) Value(key any) any {
	if cancelKey == nil || key == cancelKey {
		return c.started().Value(key)
	}
	return c.caller.Value(key)
}

// caller returns the context of the call that made h, for its values.
func (h *hold) caller() context.Context {
	if m := h.method.Load(); m != nil {
		return m.caller
	}
	return context.Background()
}

// endLost ends the method's context if h has one. Otherwise setMethod does.
func (h *hold) endLost(cause error) {
	if m := h.method.Load(); m != nil {
		m.end(h.lostError("hold", cause))
	}
}

// setMethod sets the method's context, which a loss ends. If the lock was lost before, it
// ends that context.
func (h *hold) setMethod(m *methodContext) {
	h.method.Store(m)
	if cause := h.lostCause(); cause != nil {
		m.end(h.lostError("hold", cause))
	}
}
