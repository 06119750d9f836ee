package lock

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	choreTimeout = time.Second            // of one try
	choreFirst   = 20 * time.Millisecond  // wait after the first failure, then doubled
	choreMost    = 500 * time.Millisecond // the longest wait between two tries
	choresAtOnce = 32                     // of one backend: another's silence delays none
)

// janitor clears up behind acquires and releases whose outcome is unknown, in
// the background, until each is done or the lease it is about has ended by
// itself. Its goroutine lives only while there is something to do.
type janitor struct {
	mu       sync.Mutex
	due      map[string][]*chore // waiting for room, first come, first served; by the backend's name
	later    choreHeap           // waiting for their time to be tried again
	underway map[string]int      // by the backend's name
	urgent   int                 // under way beside them
	done     chan struct{}       // of the goroutine; nil while there is none
	poke     chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
}

// chore is one owner-checked clean-up; do is called until it returns nil.
type chore struct {
	backend string // its name
	do      func(context.Context) error
	due     time.Time // when it is tried again
	end     time.Time
	tried   bool
	urgent  bool // its first try is under way, and takes nobody's room
	backoff time.Duration
}

func (j *janitor) init() {
	j.poke = make(chan struct{}, 1)
	j.due, j.underway = map[string][]*chore{}, map[string]int{}
	j.ctx, j.cancel = context.WithCancel(context.Background())
}

// add has do, which asks the backend of this name, called now, and again until it
// succeeds or the lease, of length ttl from now at most, is over.
func (j *janitor) add(backend string, ttl time.Duration, do func(context.Context) error) {
	c := newChore(backend, ttl, do)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue(c)
	j.wake()
}

// addUrgent is add for what others wait for: its first try waits for no other
// chore, of which each may hang for its second. It is for the release of a lock
// that was held, so that no more run than calls had a lock within that second.
func (j *janitor) addUrgent(backend string, ttl time.Duration, do func(context.Context) error) {
	c := newChore(backend, ttl, do)
	c.urgent = true
	j.mu.Lock()
	defer j.mu.Unlock()
	j.urgent++
	j.wake() // and have drain wait for it
	go j.work(c)
}

func newChore(backend string, ttl time.Duration, do func(context.Context) error) *chore {
	return &chore{backend: backend, do: do, end: time.Now().Add(ttl + choreTimeout), backoff: choreFirst}
}

// finish takes c off the chores under way, and puts it back if it is to be tried again.
func (j *janitor) finish(c *chore, again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.urgent {
		c.urgent = false
		j.urgent--
	} else if j.underway[c.backend]--; j.underway[c.backend] == 0 {
		delete(j.underway, c.backend)
	}
	if again {
		heap.Push(&j.later, c)
	}
	j.wake()
}

// queue adds c to what is to be tried. The mutex is held.
func (j *janitor) queue(c *chore) { j.due[c.backend] = append(j.due[c.backend], c) }

// wake has the goroutine look at what is due. The mutex is held.
func (j *janitor) wake() {
	if j.done == nil {
		j.done = make(chan struct{})
		go j.run(j.done)
	}
	select {
	case j.poke <- struct{}{}:
	default:
	}
}

// drain waits until all is cleared up, for a second at least and longer if ctx
// allows it; then it drops what is left, which ends with its lease, or which the
// backend goes on with if others use it. So each is handed to its backend once at
// least: what has found no room by then under a context that has ended.
func (j *janitor) drain(ctx context.Context) {
	defer j.cancel()
	j.mu.Lock()
	done := j.done
	j.mu.Unlock()
	if done == nil {
		return
	}
	grace := time.NewTimer(choreTimeout)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
	}
	select {
	case <-done:
	case <-ctx.Done():
		j.cancel()
		select { // what waits for its time has none left
		case j.poke <- struct{}{}:
		default:
		}
		<-done
	}
}

func (j *janitor) run(done chan struct{}) {
	defer close(done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, idle := j.collect()
		if idle {
			return
		}
		for _, c := range due {
			go j.work(c)
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-j.poke:
		}
	}
}

// collect takes out the chores that are due, as many as may run at once, and
// looks at no others: thousands may wait for an engine that hangs. next is how
// long it is until another is due. idle says that nothing is left to do: the
// goroutine must end.
func (j *janitor) collect() (due []*chore, next time.Duration, idle bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, dropping := time.Now(), j.ctx.Err() != nil
	if dropping {
		j.later = nil
	}
	for len(j.later) > 0 && !j.later[0].due.After(now) {
		j.queue(heap.Pop(&j.later).(*chore))
	}
	for backend, waiting := range j.due {
		for len(waiting) > 0 && j.underway[backend] < choresAtOnce {
			c := waiting[0]
			waiting[0], waiting = nil, waiting[1:]
			if dropping && c.tried {
				continue
			}
			j.underway[backend]++
			due = append(due, c)
		}
		if j.due[backend] = waiting; len(waiting) == 0 {
			delete(j.due, backend)
		}
	}
	if len(j.due) == 0 && len(j.later) == 0 && len(j.underway) == 0 && j.urgent == 0 {
		j.done = nil
		return nil, 0, true
	}
	next = time.Hour // or until a chore that is under way pokes
	if len(j.later) > 0 {
		next = j.later[0].due.Sub(now)
	}
	return due, next, false
}

// work tries c once and puts it back if that failed.
func (j *janitor) work(c *chore) {
	ctx, cancel := context.WithTimeout(j.ctx, choreTimeout)
	defer cancel()
	c.tried = true
	again := c.do(ctx) != nil && !time.Now().After(c.end)
	if again {
		c.due = time.Now().Add(c.backoff - rand.N(c.backoff/4))
		c.backoff = min(2*c.backoff, choreMost)
	}
	j.finish(c, again)
}

// choreHeap orders chores by when they are due.
type choreHeap []*chore

func (h choreHeap) Len() int           { return len(h) }
func (h choreHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h choreHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *choreHeap) Push(x any)        { *h = append(*h, x.(*chore)) }
func (h *choreHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}
