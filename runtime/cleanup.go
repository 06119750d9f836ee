package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	taskTimeout = time.Second            // of one try
	taskFirst   = 20 * time.Millisecond  // wait after the first failure, then doubled
	taskLongest = 500 * time.Millisecond // the longest wait between two tries
	tasksAtOnce = 32                     // of one backend that have failed: more would burden an engine that comes back

	// placeLimit is the longest that a place in an engine's queue lasts: see driver.Acquisition.
	placeLimit = 10 * time.Second
)

// cleanup undoes acquires and releases whose outcome is unknown, in
// the background, until each is done or the lease it is about has ended by
// itself. Its goroutines and timers live only while there is something to do.
type cleanup struct {
	mu      sync.Mutex
	due     map[string][]*task    // to be tried again by a worker, first come, first served; by the backend's name
	workers map[string]int        // goroutines; by the backend's name
	later   map[*task]*time.Timer // until they are tried again
	left    int                   // tasks that are not done
	dropped int                   // not done when Close had no time left
	done    chan struct{}         // closed when none is left; nil while there is none

	ctx    context.Context
	cancel context.CancelFunc
}

// task is one owner-checked clean-up; do is called until it returns nil.
type task struct {
	backend string // its name
	do      func(context.Context) error
	end     time.Time
	backoff time.Duration
}

func (c *cleanup) init() {
	c.due, c.workers, c.later = map[string][]*task{}, map[string]int{}, map[*task]*time.Timer{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// add has do, which asks the backend of this name, called now, and again until it
// succeeds or the lease, of length ttl from now at most, is over. The first try waits for
// no other task: of those that ask one engine, or one part of it, each may hang for its second.
func (c *cleanup) add(backend string, ttl time.Duration, do func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left++; c.done == nil {
		c.done = make(chan struct{})
	}
	t := &task{backend: backend, do: do, end: time.Now().Add(ttl + taskTimeout), backoff: taskFirst}
	go func() { c.tried(t, c.try(t)) }()
}

func (c *cleanup) finishLocked() {
	if c.left--; c.left == 0 {
		close(c.done)
		c.done = nil
	}
}

// run is a worker: it tries again what is due at the backend of this name. After a Close
// without time that is dropped.
func (c *cleanup) run(backend string) {
	for t := c.next(backend); t != nil; t = c.next(backend) {
		c.tried(t, c.ctx.Err() != nil || c.try(t))
	}
}

// next returns the first task that is due, or nil if there is none: then the worker ends.
func (c *cleanup) next(backend string) *task {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due[backend]
	if len(due) == 0 {
		delete(c.due, backend)
		if c.workers[backend]--; c.workers[backend] == 0 {
			delete(c.workers, backend)
		}
		return nil
	}
	t := due[0]
	due[0], c.due[backend] = nil, due[1:]
	return t
}

// tried has t tried again later if it failed, and Close has not run out of time.
func (c *cleanup) tried(t *task, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !failed:
		c.finishLocked()
	case c.ctx.Err() != nil:
		c.dropped++
		c.finishLocked()
	default:
		c.later[t] = time.AfterFunc(t.backoff-rand.N(t.backoff/4), func() { c.again(t) })
		t.backoff = min(2*t.backoff, taskLongest)
	}
}

// try reports whether t is to be tried again.
func (c *cleanup) try(t *task) bool {
	ctx, cancel := context.WithTimeout(c.ctx, taskTimeout)
	defer cancel()
	return t.do(ctx) != nil && !time.Now().After(t.end)
}

// again has t tried as soon as a worker comes to it, unless it was dropped.
func (c *cleanup) again(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later[t] == nil {
		return
	}
	delete(c.later, t)
	c.due[t.backend] = append(c.due[t.backend], t)
	if c.workers[t.backend] < tasksAtOnce {
		c.workers[t.backend]++
		go c.run(t.backend)
	}
}

// drain waits until all tasks are done, for a second at least and longer if ctx
// allows it; then it drops what is left, which ends with its lease, or which the
// backend goes on with if others use it. Each task is tried once at least, if need be
// under a context that has ended. It returns how many are left.
func (c *cleanup) drain(ctx context.Context) (left int) {
	defer c.cancel()
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	if done == nil {
		return 0
	}
	grace := time.NewTimer(taskTimeout)
	defer grace.Stop()
	select {
	case <-done:
		return 0
	case <-grace.C:
	}
	select {
	case <-done:
	case <-ctx.Done():
		c.cancel()
		c.dropLater()
		<-done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// dropLater drops what waits for its time.
func (c *cleanup) dropLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, timer := range c.later {
		timer.Stop()
		delete(c.later, t)
		c.dropped++
		c.finishLocked()
	}
}

// pending returns how many tasks are not done yet.
func (c *cleanup) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// stopCompeting cleans up after a competition that failed with err, and lets the
// next in the queue compete.
func (l *Locker) stopCompeting(op *acquireOp, err error) {
	e, a := op.entry, op.acquisition
	if !isHeld(err) && !isContextError(err) { // the engine has failed since it answered
		e.answer = nil
	}
	e.shard.mu.Lock()
	alone := e.first == nil || e.id.kind != 0 // whose places in the engine's queue are each goroutine's own
	e.shard.mu.Unlock()
	unknown := a.MayHaveRun || a.MayBeGranted || errors.Is(err, ErrIndeterminate)
	e.placed = e.placed || a.Queue && unknown
	if unknown || e.placed && alone {
		undo, lasts := *a, a.TTL
		undo.Queue = alone // the place in the engine's queue serves the next in the queue
		if e.placed && alone {
			e.placed = false
			lasts = max(lasts, placeLimit) // the engine may give the lock to a place that nobody waits at
		}
		l.cleanup.add(e.id.backend, lasts, func(ctx context.Context) error {
			return e.backend.Undo(ctx, &undo)
		})
	}
	l.next(e)
}
