package backendtest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// A process can hold and renew many locks.
var holds = []check{
	{name: "Many", alone: true, run: func(c *trial) { c.holdMany() }},
	{name: "Goroutines", alone: true, needs: []Ability{FlatHolds}, run: holdsAreFlat, without: holdsHaveOneEach},
}

// holdsEnv is the environment variable that says how many locks are held at once if the harness does not.
const holdsEnv = "LOCKGEN_HOLDS"

// acquirers is how many goroutines take locks at once. As many connections may
// be open afterwards.
const acquirers = 32

// The number of goroutines does not grow with the number of locks that are held.
func holdsAreFlat(c *trial) {
	if extra, most := c.goroutinesOfHolds(); extra > most {
		c.Errorf("%d more goroutines run with %d holds", extra, c.h.Holds)
	}
}

// holdsHaveOneEach checks holds that have a goroutine each: each has one goroutine and no more,
// and the declaration is needed.
func holdsHaveOneEach(c *trial) {
	switch extra, most := c.goroutinesOfHolds(); {
	case c.Failed():
	case extra <= most:
		c.Errorf("the harness says that each hold has a goroutine, but %d holds have only %d more: raise Holds, or remove the declaration",
			c.h.Holds, extra)
	case extra > most+c.h.Holds:
		c.Errorf("%d more goroutines run with %d holds, more than one for each hold", extra, c.h.Holds)
	}
}

// goroutinesOfHolds returns how many more goroutines ran while many locks were held,
// and how many more may run, whatever the number of holds.
func (c *trial) goroutinesOfHolds() (extra, most int) {
	c.Helper()
	if c.extraGoroutines == nil { // the check Many did not run, or it failed
		c.holdMany()
	}
	if c.extraGoroutines == nil {
		c.Fatal("the goroutines that run with many holds were not counted")
	}
	return *c.extraGoroutines, acquirers + c.h.Holds/8
}

// holdMany holds as many locks as the harness says, for longer than a lease, and requires that
// none is lost. It records in c.extraGoroutines how many more goroutines ran meanwhile.
func (c *trial) holdMany() {
	c.Helper()
	// One machine does all the work at once, so it takes a while: 4 s for 300 holds, and
	// far more if the engine runs one request at a time, since renewals run between acquires.
	perHold := 3 * time.Millisecond
	if c.h.Parallel == 1 {
		perHold = 60 * time.Millisecond
	}
	p := &lock.Policy{TTL: c.atLeast(3*time.Second + time.Duration(c.h.Holds)*perHold)}
	l, other := c.locker(), c.open()
	c.mustAcquire(l, c.newKey(), c.timeout(), "when the Locker connects")
	before := settled()
	keys := c.newKeys(c.h.Holds)
	ctxs := make([]context.Context, len(keys))
	helds := make([]*lock.Hold, len(keys))
	var errs tally
	c.each(acquirers, len(keys), func(i int) {
		var err error
		ctxs[i], helds[i], err = l.Acquire(c.bounded(), p, keys[i])
		errs.add(err)
	})
	if errs.report(c, "acquires") {
		return
	}
	// The holds are renewed about every third of the lease, so each interval of a third around such a
	// time has a peak of goroutines. The lowest of the three peaks counts, because more goroutines wait
	// while a machine stands still.
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
	lost := errs.report(c, "renewed holds")
	for _, i := range []int{0, len(keys) / 2, len(keys) - 1} {
		if !lost {
			other.heldUnder(ctxs[i], keys[i])
		}
	}
	c.each(acquirers, len(keys), func(i int) { errs.add(finish(helds[i])) })
	if lost || errs.report(c, "releases") {
		return
	}
	c.free(other.take(keys[0]))
	c.free(other.take(keys[len(keys)-1]))
	// A peak is 0 if the machine stood still for the whole interval.
	counted := slices.DeleteFunc(peaks[:], func(n int) bool { return n == 0 })
	extra := slices.Min(counted) - before
	c.suite.extraGoroutines = &extra
}

// tally counts calls and their errors.
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

// report reports an error if any call failed, and resets the counts.
func (t *tally) report(c *trial, what string) (failed bool) {
	c.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed = t.failed > 0; failed {
		c.Errorf("%d of %d %s failed; the first error: %v", t.failed, t.of, what, t.first)
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
