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

// A tick runs to its end once, over all processes; a leader is known to others.
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
		c.Errorf("a tick: %v; the backend has none, so it must wrap lock.ErrInvalid", err)
	}
	held.Release(nil)
}

// named is locker with a name of its own.
func (c *trial) named(name string) *lock.Locker {
	return c.namedOn(name, c.h.Open(c.T))
}

// namedFaulty is named with faults on its way to the engine.
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

// Processes that all run each tick, some of them in vain, have each completed once.
func jobsTicks(c *trial) {
	const ticks, processes = 6, 4
	key, p := c.newKey(), c.kind(lock.Policy{Once: true})
	var completed [ticks]atomic.Int32
	var r room
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
						if succeeded { // and the engine knows
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
		c.Errorf("%d run under %s", r.most, key)
	}
	for tick := range completed {
		if n := completed[tick].Load(); n != 1 {
			c.Errorf("tick %d was completed %d times", tick, n)
		}
	}
}

// Who waits for the tick that another runs hears that it is completed, and need not wait
// for who runs the next.
func jobsWaiting(c *trial) {
	a, b, key, p := c.locker(), c.locker(), c.newKey(), c.kind(lock.Policy{Once: true})
	_, held, err := a.AcquireOnce(c.bounded(), p, key, `+1"@2`) // which a record must not take for its own
	if err != nil {
		c.Fatalf("a tick that nobody ran: %v", err)
	}
	told := make(chan error, 1)
	go func() {
		_, other, err := b.AcquireOnce(c.bounded(), p, key, `+1"@2`)
		other.Release(nil)
		told <- err
	}()
	time.Sleep(50 * time.Millisecond) // most often it waits by then
	begin := time.Now()
	held.Complete()
	c.leave(held)
	if err := receive(c, "the answer to who waited for a tick", told); !errors.Is(err, lock.ErrDone) {
		c.Errorf("a tick that another has completed: %v; it must wrap lock.ErrDone", err)
	}
	c.within("the answer to who waited for a tick", begin, 2*time.Second)
}

// A tick whose process died is run again once its lease is over, and not after that.
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
		c.Errorf("a tick whose process died was run %d times more", runs)
	}
}

// Others are told who leads, and who comes next leads when that one resigns.
func jobsLeader(c *trial) {
	k := newCourt(c)
	if who, err := k.watch.Leader(c.bounded(), k.policy, k.key); err != nil || who != nil {
		c.Errorf("nobody leads: %+v, %v", who, err)
	}
	first := k.campaign("first", c.named("first"))
	t := k.leads(receive(c, "the first leader", first), first)
	second := k.campaign("second", c.named("second"))
	close(t.resign)
	t = k.leads(receive(c, "the next leader", second), second)
	close(t.resign)
	k.adjourn()
}
