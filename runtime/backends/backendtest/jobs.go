package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A tick is completed once, across all processes. Other processes can ask who the leader is.
var jobs = []check{
	{name: "Ticks", needs: []Ability{Ticks}, run: jobsTicks, without: refusesTicks},
	{name: "Waiting", needs: []Ability{Ticks}, run: jobsWaiting},
	{name: "CrashedTick", needs: []Ability{Ticks}, run: jobsCrashedTick},
	{name: "Leader", needs: []Ability{FairLocks}, run: jobsLeader},
	{name: "LeaderCrashed", needs: []Ability{FairLocks}, run: leaderCrashed},
	{name: "LeaderCutOff", needs: []Ability{FairLocks, NetworkFaults}, run: leaderCutOff},
	{name: "CampaignCutOff", needs: []Ability{FairLocks, NetworkFaults}, run: campaignCutOff},
}

func refusesTicks(c *trial) {
	_, held, err := c.locker().AcquireOnce(c.bounded(), c.kind(lock.Policy{Once: true}), c.newKey(), "1")
	if !errors.Is(err, lock.ErrInvalid) {
		c.Errorf("a tick: %v; the backend has no ticks, so the error must wrap lock.ErrInvalid", err)
	}
	held.Release(nil)
}

// named is locker with a name of its own.
func (c *trial) named(name string) *lock.Locker {
	return c.namedOn(name, c.h.Open(c.T))
}

// namedFaulty is like named, but its connection to the engine has Faults.
func (c *trial) namedFaulty(name string) (*lock.Locker, Faults) {
	b, faults := c.h.OpenFaulty(c.T)
	l := c.namedOn(name, b)
	c.Cleanup(faults.Heal)
	return l, faults
}

func (c *trial) namedOn(name string, b driver.Backend) *lock.Locker {
	l := lock.New(b, &lock.Options{Name: name})
	c.Cleanup(func() { c.closeLocker(l) })
	return l
}

// job is one attempt to run tick. It reports whether the tick is completed.
func (c *trial) job(ctx context.Context, l *lock.Locker, p *lock.Policy, key, tick string, run func(ctx context.Context) error) (done bool) {
	ctx, held, err := l.AcquireOnce(ctx, p, key, tick)
	switch {
	case errors.Is(err, lock.ErrDone):
		return true
	case err != nil:
		c.Errorf("tick %q: %v", tick, err)
		return true
	}
	err = run(ctx)
	if err == nil {
		held.Complete()
	}
	failed := err != nil
	held.Release(&err)
	return !failed && err == nil
}

// Several processes try to run each tick, and some attempts fail. Each tick is completed once.
func jobsTicks(c *trial) {
	const ticks, processes = 6, 4
	key, p := c.newKey(), c.kind(lock.Policy{Once: true})
	var completed [ticks]atomic.Int32
	var r insiders
	var all sync.WaitGroup
	for i := range processes {
		l := c.locker()
		all.Go(func() {
			for tick := range ticks {
				for n := 0; ; n++ {
					succeeded := false
					if c.job(c.contended(), l, p, key, fmt.Sprint(tick), func(ctx context.Context) error {
						defer r.enter(ctx)()
						if (tick+i+n)%3 == 0 {
							return errors.New("the job failed")
						}
						succeeded = true
						return nil
					}) {
						if succeeded { // and the release has stored that at the engine
							completed[tick].Add(1)
						}
						break
					}
				}
			}
		})
	}
	all.Wait()
	if r.most > 1 {
		c.Errorf("%d processes ran under %s at the same time", r.most, key)
	}
	for tick := range completed {
		if n := completed[tick].Load(); n != 1 {
			c.Errorf("tick %d was completed %d times", tick, n)
		}
	}
}

// A call that waits for a tick, which another process runs, returns as soon as the tick is
// completed. It does not wait for the process that runs the next tick.
func jobsWaiting(c *trial) {
	a, b, key, p := c.locker(), c.locker(), c.newKey(), c.kind(lock.Policy{Once: true})
	_, held, err := a.AcquireOnce(c.bounded(), p, key, `+1"@2`) // looks like a part of a record, but must be read as a tick
	if err != nil {
		c.Fatalf("a tick that nobody ran: %v", err)
	}
	told := make(chan error, 1)
	go func() {
		_, other, err := b.AcquireOnce(c.bounded(), p, key, `+1"@2`)
		other.Release(nil)
		told <- err
	}()
	time.Sleep(50 * time.Millisecond) // the other call usually waits by then
	begin := time.Now()
	held.Complete()
	c.leave(held)
	if err := receive(c, "the call that waited for a tick", told); !errors.Is(err, lock.ErrDone) {
		c.Errorf("a tick that another process completed: %v; it must wrap lock.ErrDone", err)
	}
	c.within("the end of the call that waited for a tick", begin, 2*time.Second)
}

// A tick whose process died is run again, once, after the lease has ended.
func jobsCrashedTick(c *trial) {
	dead, a, key := c.open(), c.locker(), c.newKey()
	gone := dead.kindOf(key, c.h.TTL, driver.Mode{Kind: driver.Once, Tick: "1"})
	if _, err := dead.Acquire(c.bounded(), gone); err != nil {
		c.Fatalf("a tick that nobody ran: %v", err)
	}
	p, runs := c.kind(lock.Policy{Once: true}), 0
	for range 2 {
		c.job(c.bounded(), a, p, key, "1", func(context.Context) error { runs++; return nil })
	}
	if runs != 1 {
		c.Errorf("a tick whose process died was run %d more times", runs)
	}
}

// Other processes can ask who leads. When the leader resigns, the next candidate leads.
func jobsLeader(c *trial) {
	e := newElection(c)
	if who, err := e.watch.Leader(c.bounded(), e.policy, e.key); err != nil || who != nil {
		c.Errorf("Leader before the first campaign: %+v, %v", who, err)
	}
	first := e.campaign("first", c.named("first"))
	t := e.leads(receive(c, "the first leader", first), first)
	second := e.campaign("second", c.named("second"))
	close(t.resign)
	t = e.leads(receive(c, "the next leader", second), second)
	close(t.resign)
	e.end()
}
