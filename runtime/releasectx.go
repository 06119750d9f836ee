package lock

import (
	"context"
	"sync"
	"time"
)

const (
	// releaseLimit is the longest that a release holds its caller up.
	releaseLimit = time.Second
	// releaseGrace is how long it does so once the caller's context has ended.
	releaseGrace = 100 * time.Millisecond
)

// releaseContext is the context of a release. It keeps the caller's values and ends
// after releaseLimit, or releaseGrace after the caller's context, which may have
// ended before. Timers start when Done is first called, so that a release in memory
// costs none.
type releaseContext struct {
	caller   context.Context
	deadline time.Time

	mu       sync.Mutex // a backend may use the context from several goroutines
	timers   *releaseTimers
	finished bool
}

// releaseTimers are what Done starts.
type releaseTimers struct {
	context.Context
	cancel context.CancelFunc
	stop   func() bool // nil if the release was over before
}

func newReleaseContext(caller context.Context, now time.Time) *releaseContext {
	c := &releaseContext{}
	c.init(caller, now)
	return c
}

func (c *releaseContext) init(caller context.Context, now time.Time) {
	c.caller, c.deadline = caller, now.Add(releaseLimit)
}

// started returns the inner context, and makes it if need be. It has ended if the
// release is over.
func (c *releaseContext) started() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timers != nil {
		return c.timers
	}
	inner, cancel := context.WithDeadline(context.WithoutCancel(c.caller), c.deadline)
	c.timers = &releaseTimers{Context: inner, cancel: cancel}
	if c.finished {
		cancel()
		return c.timers
	}
	c.timers.stop = context.AfterFunc(c.caller, func() {
		select {
		case <-time.After(releaseGrace):
			cancel()
		case <-inner.Done():
		}
	})
	return c.timers
}

// finish ends the inner context and its timers.
func (c *releaseContext) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished = true
	if c.timers != nil && c.timers.stop != nil {
		c.timers.stop()
		c.timers.cancel()
	}
}

func (c *releaseContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *releaseContext) Done() <-chan struct{} { return c.started().Done() }

func (c *releaseContext) Err() error {
	c.mu.Lock()
	timers := c.timers
	c.mu.Unlock()
	if timers != nil {
		return timers.Err()
	}
	if time.Now().After(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value returns the caller's value. Package context asks with a key of its own for
// the context that it can link to: that is the inner one. Otherwise each context
// derived from c would cost a goroutine.
func (c *releaseContext) Value(key any) any {
	if cancelKey == nil || key == cancelKey {
		return c.started().Value(key)
	}
	return c.caller.Value(key)
}

// endedContext is a context that has ended, for work that nobody waits for.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
