package lock

import (
	"context"
	"sync"
	"time"
)

// methodContext is the caller's context, ended as well when the lock is
// released or lost. Package context does the ending, but is asked to only by
// code that waits for it: a short method costs no timer, channel or closure.
type methodContext struct {
	caller context.Context

	mu     sync.Mutex
	inner  context.Context // nil until asked for
	cancel context.CancelCauseFunc
	cause  error // why it ended, or nil
}

// end ends c for cause, unless it has ended: what ended a context stays.
func (c *methodContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	case c.cause != nil: // before whatever may have ended the caller's since
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

// Value answers package context, which looks for the context that ends, by the
// one that does; the rest are the caller's values.
func (c *methodContext) Value(key any) any {
	if cancelKey == nil || key == cancelKey {
		return c.started().Value(key)
	}
	return c.caller.Value(key)
}
