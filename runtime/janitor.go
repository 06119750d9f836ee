package lock

import (
	"context"
	"math/rand/v2"
	"slices"
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
	chores   []*chore       // waiting for their time
	underway map[string]int // by the backend's name
	done     chan struct{}  // of the goroutine; nil while there is none
	poke     chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
}

// chore is one owner-checked clean-up; do is called until it returns nil.
type chore struct {
	backend string // its name
	do      func(context.Context) error
	due     time.Time
	end     time.Time
	tried   bool
	backoff time.Duration
}

func (j *janitor) init() {
	j.poke, j.underway = make(chan struct{}, 1), map[string]int{}
	j.ctx, j.cancel = context.WithCancel(context.Background())
}

// add has do, which asks the backend of this name, called now, and again until it
// succeeds or the lease, of length ttl from now at most, is over.
func (j *janitor) add(backend string, ttl time.Duration, do func(context.Context) error) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.put(&chore{backend: backend, do: do, due: now, end: now.Add(ttl + choreTimeout), backoff: choreFirst})
}

// finish takes c off the chores under way, and puts it back if it is to be tried again.
func (j *janitor) finish(c *chore, again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.underway[c.backend]--; j.underway[c.backend] == 0 {
		delete(j.underway, c.backend)
	}
	if again {
		j.put(c)
	} else {
		j.wake()
	}
}

// put adds c. The mutex is held.
func (j *janitor) put(c *chore) {
	j.chores = append(j.chores, c)
	j.wake()
}

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
// backend goes on with if others use it. So each is tried once at least, even if
// there is no time for it.
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

// collect takes out the chores that are due, as many as may run at once. next
// is how long it is until another is. idle says that nothing is left to do:
// the goroutine must end.
func (j *janitor) collect() (due []*chore, next time.Duration, idle bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.ctx.Err() != nil {
		j.chores = slices.DeleteFunc(j.chores, func(c *chore) bool { return c.tried })
	}
	next = time.Hour // or until a chore that is under way pokes
	rest := j.chores[:0]
	for _, c := range j.chores {
		switch wait := c.due.Sub(now); {
		case wait > 0:
			next = min(next, wait)
			rest = append(rest, c)
		case j.underway[c.backend] < choresAtOnce:
			j.underway[c.backend]++
			due = append(due, c)
		default:
			rest = append(rest, c)
		}
	}
	clear(j.chores[len(rest):])
	j.chores = rest
	if len(rest) == 0 && len(j.underway) == 0 {
		j.done = nil
		return nil, 0, true
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
