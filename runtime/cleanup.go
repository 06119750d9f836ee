package lock

import (
	"container/heap"
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
	tasksAtOnce = 32                     // of one backend: another's silence delays none

	// placeLimit is the longest that a place in an engine's queue lasts: see driver.Acquisition.
	placeLimit = 10 * time.Second
)

// cleanup undoes acquires and releases whose outcome is unknown, in
// the background, until each is done or the lease it is about has ended by
// itself. Its goroutine lives only while there is something to do.
type cleanup struct {
	mu       sync.Mutex
	due      map[string][]*task // waiting for room, first come, first served; by the backend's name
	later    taskHeap           // waiting for their time to be tried again
	underway map[string]int     // by the backend's name
	urgent   int                // under way beside them
	dropped  int                // not done when Close had no time left
	done     chan struct{}      // of the goroutine; nil while there is none
	poke     chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
}

// task is one owner-checked clean-up; do is called until it returns nil.
type task struct {
	backend string // its name
	do      func(context.Context) error
	due     time.Time // when it is tried again
	end     time.Time
	tried   bool
	urgent  bool // its first try is under way, and takes nobody's room
	backoff time.Duration
}

func (c *cleanup) init() {
	c.poke = make(chan struct{}, 1)
	c.due, c.underway = map[string][]*task{}, map[string]int{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// add has do, which asks the backend of this name, called now, and again until it
// succeeds or the lease, of length ttl from now at most, is over.
func (c *cleanup) add(backend string, ttl time.Duration, do func(context.Context) error) {
	t := newTask(backend, ttl, do)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueLocked(t)
	c.wakeLocked()
}

// addUrgent is add for what others wait for: its first try waits for no other
// task, of which each may hang for its second. It is for the release of a lock
// that was held, so that no more run than calls had a lock within that second.
func (c *cleanup) addUrgent(backend string, ttl time.Duration, do func(context.Context) error) {
	t := newTask(backend, ttl, do)
	t.urgent = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.urgent++
	c.wakeLocked() // and have drain wait for it
	go c.work(t)
}

func newTask(backend string, ttl time.Duration, do func(context.Context) error) *task {
	return &task{backend: backend, do: do, end: time.Now().Add(ttl + taskTimeout), backoff: taskFirst}
}

// finish takes t off the tasks under way, and puts it back if it is to be tried again.
func (c *cleanup) finish(t *task, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.urgent {
		t.urgent = false
		c.urgent--
	} else if c.underway[t.backend]--; c.underway[t.backend] == 0 {
		delete(c.underway, t.backend)
	}
	if again {
		heap.Push(&c.later, t)
	}
	c.wakeLocked()
}

// queueLocked adds t to what is to be tried.
func (c *cleanup) queueLocked(t *task) { c.due[t.backend] = append(c.due[t.backend], t) }

// wakeLocked has the goroutine look at what is due.
func (c *cleanup) wakeLocked() {
	if c.done == nil {
		c.done = make(chan struct{})
		go c.run(c.done)
	}
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// drain waits until all tasks are done, for a second at least and longer if ctx
// allows it; then it drops what is left, which ends with its lease, or which the
// backend goes on with if others use it. Each task is tried once at least: one that
// has found no room by then runs under a context that has ended. It returns how many
// are left.
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
		select { // what waits for its time has none left
		case c.poke <- struct{}{}:
		default:
		}
		<-done
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

func (c *cleanup) run(done chan struct{}) {
	defer close(done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, idle := c.collect()
		if idle {
			return
		}
		for _, t := range due {
			go c.work(t)
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-c.poke:
		}
	}
}

// collect takes out the tasks that are due, as many as may run at once, and
// looks at no others: thousands may wait for an engine that hangs. next is how
// long it is until another is due. idle says that nothing is left to do: the
// goroutine must end.
func (c *cleanup) collect() (due []*task, next time.Duration, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, dropping := time.Now(), c.ctx.Err() != nil
	if dropping {
		c.dropped += len(c.later)
		c.later = nil
	}
	for len(c.later) > 0 && !c.later[0].due.After(now) {
		c.queueLocked(heap.Pop(&c.later).(*task))
	}
	for backend, waiting := range c.due {
		for len(waiting) > 0 && c.underway[backend] < tasksAtOnce {
			t := waiting[0]
			waiting[0], waiting = nil, waiting[1:]
			if dropping && t.tried {
				c.dropped++
				continue
			}
			c.underway[backend]++
			due = append(due, t)
		}
		if c.due[backend] = waiting; len(waiting) == 0 {
			delete(c.due, backend)
		}
	}
	if len(c.due) == 0 && len(c.later) == 0 && len(c.underway) == 0 && c.urgent == 0 {
		c.done = nil
		return nil, 0, true
	}
	next = time.Hour // or until a task that is under way pokes
	if len(c.later) > 0 {
		next = c.later[0].due.Sub(now)
	}
	return due, next, false
}

// work tries t once and puts it back if that failed.
func (c *cleanup) work(t *task) {
	ctx, cancel := context.WithTimeout(c.ctx, taskTimeout)
	defer cancel()
	t.tried = true
	again := t.do(ctx) != nil && !time.Now().After(t.end)
	if again {
		t.due = time.Now().Add(t.backoff - rand.N(t.backoff/4))
		t.backoff = min(2*t.backoff, taskLongest)
	}
	c.finish(t, again)
}

// taskHeap orders tasks by when they are due.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h taskHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)        { *h = append(*h, x.(*task)) }
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

// pending returns how many tasks are not done yet.
func (c *cleanup) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.urgent + len(c.later)
	for _, due := range c.due {
		n += len(due)
	}
	for _, tried := range c.underway {
		n += tried
	}
	return n
}

// stopCompeting cleans up after a competition that failed with err, and lets the
// next in the queue compete.
func (l *Locker) stopCompeting(op *acquireOp, err error) {
	e, a := op.entry, op.acquisition
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
