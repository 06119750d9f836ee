package lock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	taskTimeout = time.Second            // of one try
	taskFirst   = 20 * time.Millisecond  // wait after the first failure, then doubled
	taskLongest = 500 * time.Millisecond // the longest wait between two tries
	tasksAtOnce = 32                     // failed tasks of one backend that try again at once: more would burden an engine that comes back

	// placeLimit is the longest that a place in an engine's queue lasts: see driver.Acquisition.
	placeLimit = 10 * time.Second
)

// cleanup undoes acquires and releases whose outcome is unknown, in the background, until each
// is done or the lease it is about has ended by itself. Each has a goroutine, which lives until then.
type cleanup struct {
	mu      sync.Mutex
	retries map[string]chan struct{} // a semaphore for tasks that try again, by the backend's name
	left    int                      // tasks that are not done
	dropped int                      // not done when Close had no time left
	done    chan struct{}            // closed when none is left; nil while there is none

	ctx    context.Context
	cancel context.CancelFunc
}

func (c *cleanup) init() {
	c.retries = map[string]chan struct{}{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// add calls do in the background: now, and again until it succeeds or the lease is over, ttl
// from now at the latest. do asks the backend of this name. The first try waits for no other
// task, because each task may hang for taskTimeout if the engine does.
func (c *cleanup) add(backend string, ttl time.Duration, do func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left++; c.done == nil {
		c.done = make(chan struct{})
	}
	slots := c.retries[backend]
	if slots == nil {
		slots = make(chan struct{}, tasksAtOnce)
		c.retries[backend] = slots
	}
	end := time.Now().Add(ttl + taskTimeout)
	go func() { c.finish(c.run(do, end, slots)) }()
}

// run calls do until it succeeds or end has passed. It reports false if Close has run out of
// time before.
func (c *cleanup) run(do func(context.Context) error, end time.Time, slots chan struct{}) bool {
	again := c.tryOnce(do, end)
	for backoff := taskFirst; again; backoff = min(2*backoff, taskLongest) {
		select {
		case <-time.After(backoff - rand.N(backoff/4)):
		case <-c.ctx.Done():
			return false
		}
		select {
		case slots <- struct{}{}:
		case <-c.ctx.Done():
			return false
		}
		again = c.tryOnce(do, end)
		<-slots
	}
	return true
}

// tryOnce calls do once, and reports whether it is to be called again.
func (c *cleanup) tryOnce(do func(context.Context) error, end time.Time) bool {
	ctx, cancel := context.WithTimeout(c.ctx, taskTimeout)
	defer cancel()
	answer := make(chan error)
	go func() { answer <- do(ctx) }() // so that its stack is not kept until the next try
	return <-answer != nil && !time.Now().After(end)
}

func (c *cleanup) finish(done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !done {
		c.dropped++
	}
	if c.left--; c.left == 0 {
		close(c.done)
		c.done = nil
	}
}

// drain waits until all tasks are done, for a second at least and longer if ctx
// allows it. Then it drops the rest, and returns how many: their locks end with their
// leases, unless the backend, which others may use, goes on. Each task is tried once at
// least, if need be under a context that has ended.
func (c *cleanup) drain(ctx context.Context) (left int) {
	defer c.cancel()
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	if done == nil {
		return 0
	}
	select {
	case <-done:
		return 0
	case <-time.After(taskTimeout):
	}
	select {
	case <-done:
	case <-ctx.Done():
		c.cancel()
		<-done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// pending returns how many tasks are not done yet.
func (c *cleanup) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// undo undoes a, an acquisition of e's key, in the background. After lasts, what a took is over
// by itself.
func (l *Locker) undo(e *entry, a *driver.Acquisition, lasts time.Duration) {
	l.cleanup.add(e.id.backend, lasts, func(ctx context.Context) error { return e.backend.Undo(ctx, a) })
}
