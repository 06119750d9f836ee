package backendtest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// Many locks are held as one is.
var holds = []check{
	{name: "Many", alone: true, run: func(c *trial) { c.holdMany() }},
	{name: "Goroutines", alone: true, needs: []Ability{FlatHolds}, run: holdsAreFlat, without: holdsHaveOneEach},
}

// holdsEnv is how many locks are held at once, where the harness does not say.
const holdsEnv = "LOCKGEN_HOLDS"

// entrants is how many goroutines take locks at once here: so many connections
// may be left.
const entrants = 32

// Goroutines do not grow with the locks that are held.
func holdsAreFlat(c *trial) {
	if extra, most := c.goroutinesOfHolds(); extra > most {
		c.Errorf("%d goroutines more run with %d holds", extra, c.h.Holds)
	}
}

// holdsHaveOneEach is for holds that have a goroutine each: one and no more, and
// the declaration must be needed.
func holdsHaveOneEach(c *trial) {
	switch extra, most := c.goroutinesOfHolds(); {
	case c.Failed():
	case extra <= most:
		c.Errorf("the harness says that each hold has a goroutine, but only %d more run with %d holds: have more of them, or declare nothing",
			extra, c.h.Holds)
	case extra > most+c.h.Holds:
		c.Errorf("%d goroutines more run with %d holds, more than one each", extra, c.h.Holds)
	}
}

// goroutinesOfHolds returns how many goroutines more ran when many locks were held,
// and how many may, whatever the number of holds.
func (c *trial) goroutinesOfHolds() (extra, most int) {
	c.Helper()
	if c.held == nil { // Many was not chosen, or has failed
		c.holdMany()
	}
	if c.held == nil {
		c.Fatal("nobody knows how many goroutines run with many holds")
	}
	return *c.held, entrants + c.h.Holds/8
}

// holdMany has as many held as the harness says for longer than a lease, and none
// is lost. It notes how many goroutines more ran meanwhile.
func (c *trial) holdMany() {
	c.Helper()
	// A machine that does all that at once takes its time: 4 s for 300, and
	// far more where one thing is done after the other, renewals among acquires.
	perHold := 3 * time.Millisecond
	if c.h.Parallel == 1 {
		perHold = 60 * time.Millisecond
	}
	p := &lock.Policy{TTL: c.atLeast(3*time.Second + time.Duration(c.h.Holds)*perHold)}
	l, other := c.locker(), c.open()
	c.passesBy(l, c.newKey(), c.soon(), "connections stand")
	before := settled()
	keys := c.newKeys(c.h.Holds)
	ctxs := make([]context.Context, len(keys))
	helds := make([]*lock.Hold, len(keys))
	var errs tally
	c.each(entrants, len(keys), func(i int) {
		var err error
		ctxs[i], helds[i], err = l.Acquire(c.bounded(), p, keys[i])
		errs.add(err)
	})
	if errs.report(c, "acquires") {
		return
	}
	// The holds are renewed at each third of the lease, about: there is a peak within a sixth of it.
	// The least of the three counts, for while a machine stands still more goroutines wait.
	var peaks [3]int
	begin := time.Now()
	for now := begin; now.Sub(begin) < p.TTL*5/4; now = time.Now() {
		if i := (int(now.Sub(begin)*6/p.TTL) - 1) / 2; i < len(peaks) {
			peaks[i] = max(peaks[i], runtime.NumGoroutine())
		}
		time.Sleep(p.TTL / 20)
	}
	for _, ctx := range ctxs {
		errs.add(lock.Check(ctx))
	}
	lost := errs.report(c, "holds that were renewed")
	for _, i := range []int{0, len(keys) / 2, len(keys) - 1} {
		if !lost {
			other.heldUnder(ctxs[i], keys[i])
		}
	}
	c.each(entrants, len(keys), func(i int) { errs.add(finish(helds[i])) })
	if lost || errs.report(c, "releases") {
		return
	}
	c.free(other.take(keys[0]))
	c.free(other.take(keys[len(keys)-1]))
	// Where the machine stood still all the time nobody has counted.
	counted := slices.DeleteFunc(peaks[:], func(n int) bool { return n == 0 })
	extra := slices.Min(counted) - before
	c.suite.held = &extra
}

// tally counts errors of one kind.
type tally struct {
	mu     sync.Mutex
	of     int
	failed int
	first  error
}

func (t *tally) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of++
	if err != nil {
		t.failed++
		if t.first == nil {
			t.first = err
		}
	}
}

// report says what was counted, and starts anew.
func (t *tally) report(c *trial, what string) (failed bool) {
	c.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed = t.failed > 0; failed {
		c.Errorf("%d of %d %s failed, the first with: %v", t.failed, t.of, what, t.first)
	}
	t.of, t.failed, t.first = 0, 0, nil
	return failed
}

// each calls f for 0 to n-1, at most atOnce at a time.
func (c *trial) each(atOnce, n int, f func(i int)) {
	var all sync.WaitGroup
	defer all.Wait()
	next := make(chan int)
	defer close(next)
	for range atOnce {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
}
