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

// releaseContext is the context of a release. The caller's own may have ended,
// and the lock must be released all the same: it keeps the caller's values,
// and ends after releaseLimit, or releaseGrace after the caller's ended. Timers
// are started only for a backend that asks for Done, so that a release in
// memory costs none.
type releaseContext struct {
	caller   context.Context
	deadline time.Time

	once   sync.Once
	inner  context.Context
	cancel context.CancelFunc
	stop   func() bool
}

func (c *releaseContext) start() {
	c.once.Do(func() {
		c.inner, c.cancel = context.WithDeadline(context.WithoutCancel(c.caller), c.deadline)
		c.stop = context.AfterFunc(c.caller, func() {
			t := time.NewTimer(releaseGrace)
			defer t.Stop()
			select {
			case <-t.C:
				c.cancel()
			case <-c.inner.Done():
			}
		})
	})
}

// finish stops what start started.
func (c *releaseContext) finish() {
	if c.inner != nil {
		c.stop()
		c.cancel()
	}
}

func (c *releaseContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *releaseContext) Done() <-chan struct{} {
	c.start()
	return c.inner.Done()
}

func (c *releaseContext) Err() error {
	if c.inner != nil {
		return c.inner.Err()
	}
	if time.Now().After(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *releaseContext) Value(key any) any { return c.caller.Value(key) }
