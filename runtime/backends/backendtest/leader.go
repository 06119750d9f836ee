package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// election is a leadership for which several processes campaign. At the start of each term it
// checks that no other leader's Check succeeds, and that the token is higher than before.
type election struct {
	*trial
	key    string
	policy *lock.Policy
	watch  *lock.Locker // asks the engine who leads

	mu      sync.Mutex // guards the rest
	terms   []*term    // terms whose function has not returned
	highest uint64
	lockers []*lock.Locker
	all     sync.WaitGroup
}

// term is one term of one leader.
type term struct {
	name   string
	leader *lock.Locker
	ctx    context.Context
	resign chan struct{}
	over   chan struct{} // closed when its function has returned
}

func newElection(c *trial) *election {
	p := &lock.Policy{Leader: true, TTL: c.long()}
	return &election{trial: c, key: c.newKey(), policy: p, watch: c.locker()}
}

// campaign has a process of this name campaign with l, until it resigns. It sends each of its
// terms to the channel.
func (e *election) campaign(name string, l *lock.Locker) <-chan *term {
	return e.campaignFor(name, l, e.policy.TTL)
}

// campaignFor is campaign with leases of another length. A process that will be cut off gets brief
// leases. The others get long ones, which they keep on a busy machine.
func (e *election) campaignFor(name string, l *lock.Locker, ttl time.Duration) <-chan *term {
	begun := make(chan *term, 8)
	e.lockers = append(e.lockers, l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context())) // ends with the check
	e.Cleanup(cancel)
	policy := *e.policy
	policy.TTL = ttl
	e.all.Go(func() {
		if err := l.Lead(ctx, &policy, e.key, func(ctx context.Context) error { return e.lead(ctx, name, l, begun) }); err != nil {
			e.Errorf("the campaign of %s ended: %v", name, err)
		}
	})
	return begun
}

func (e *election) lead(ctx context.Context, name string, l *lock.Locker, begun chan<- *term) error {
	t := &term{name: name, leader: l, ctx: ctx, resign: make(chan struct{}), over: make(chan struct{})}
	token, _ := lock.Token(ctx)
	e.mu.Lock()
	for _, other := range e.terms {
		if lock.Check(ctx) == nil && lock.Check(other.ctx) == nil {
			e.Errorf("%s and %s lead at the same time", name, other.name)
		}
	}
	if token <= e.highest {
		e.Errorf("%s leads with token %d, after token %d", name, token, e.highest)
	}
	e.highest = max(e.highest, token)
	e.terms = append(e.terms, t)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.terms = slices.DeleteFunc(e.terms, func(o *term) bool { return o == t })
		close(t.over)
	}()
	begun <- t
	select {
	case <-t.resign:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queues returns when l, which campaigns while another process leads, is in the engine's queue.
func (e *election) queues(l *lock.Locker) {
	e.Helper()
	for ctx := e.bounded(); len(l.Snapshot().Waiters) == 0; time.Sleep(5 * time.Millisecond) { // the campaign has no answer yet
		if ctx.Err() != nil {
			e.Fatalf("a campaign does not wait while another process leads")
		}
	}
}

// leads requires that the engine names the leader of t. A term that began after waiting has a brief
// lease at first; leads returns t once that lease has been renewed. A late machine may lose the
// brief lease. Then leads returns the campaign's next term, received from begun.
func (e *election) leads(t *term, begun <-chan *term) *term {
	e.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		token, _ := lock.Token(t.ctx)
		who, err := e.watch.Leader(e.bounded(), e.policy, e.key)
		switch lost := lock.Check(t.ctx); {
		case lost != nil && e.late(begin.Add(-briefLease), lost):
			t = receive(e.trial, "the next term of "+t.name, begun)
			begin = time.Now()
		case lost != nil || err != nil || who == nil || who.Name != t.name || who.Token != token:
			e.Fatalf("%s leads with token %d (%v); the engine says %+v, %v", t.name, token, lost, who, err)
		case t.left() > min(briefLease, e.h.TTL/2):
			return t
		case time.Since(begin) > e.timeout():
			e.Fatalf("%s leads with a lease that has %v left and is not renewed", t.name, t.left())
		}
	}
}

// left returns how much of the term's lease is left, as far as its leader knows.
func (t *term) left() time.Duration {
	token, _ := lock.Token(t.ctx)
	for _, h := range t.leader.Snapshot().Holds {
		if h.Token == token {
			return time.Until(h.Deadline)
		}
	}
	return 0
}

// end waits for the end of all campaigns, closes their Lockers, and requires that nothing of
// them is left at the engine.
func (e *election) end() {
	e.Helper()
	ended := make(chan bool, 1)
	go func() { e.all.Wait(); ended <- true }()
	receive(e.trial, "the end of all campaigns", ended)
	for _, l := range e.lockers {
		e.closeLocker(l)
	}
	begin := time.Now()
	who, err := e.watch.Leader(e.bounded(), e.policy, e.key)
	if who != nil || err != nil {
		e.Errorf("after all have resigned, the engine says %+v, %v", who, err)
	}
	e.mustLead(begin)
	_, cannot := e.h.Cannot[Inspection]
	_, clockless := e.h.Cannot[Clock]
	if cannot || clockless {
		return
	}
	var left []string
	for time.Since(begin) < e.timeout() {
		if left = e.h.Leftovers(e.T, e.key); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.Errorf("entries of candidates are left at the engine: %v", left)
}

// mustLead requires that a new candidate leads at once: nobody is in the queue before it.
func (e *election) mustLead(begin time.Time) {
	e.Helper()
	_, held, err := e.watch.Acquire(e.bounded(), e.policy, e.key)
	if err != nil {
		e.Errorf("acquire of the leadership that nobody has: %v", err)
		return
	}
	e.within("an acquire of the leadership that nobody has", begin, pollLimit/2)
	e.leave(held)
}

// giveUp has processes end their campaigns while another process leads. If they stayed in the
// queue, each would delay the next leader by half a second.
func (e *election) giveUp() {
	e.Helper()
	var all sync.WaitGroup
	for range 3 {
		l := e.named("nobody")
		all.Go(func() {
			ctx, cancel := context.WithCancel(e.bounded())
			defer cancel()
			go func() {
				defer cancel()
				e.queues(l)
			}()
			err := l.Lead(ctx, e.policy, e.key, func(context.Context) error {
				e.Error("a process that gave up leads")
				return nil
			})
			e.is("a campaign that was given up", err, lock.ErrNotAcquired)
		})
	}
	all.Wait()
}

// After a leader died, the next one leads when the lease has ended, and not before. After a leader
// resigned, the next one leads as soon as the engine notifies it.
func leaderCrashed(c *trial) {
	e := newElection(c)
	dead := c.open()
	gone, err := dead.Acquire(c.bounded(), dead.kindOf(e.key, c.h.TTL, driver.Mode{Kind: driver.Fair, Name: "dead"}))
	if err != nil {
		c.Fatalf("Acquire of a leadership that nobody has: %v", err)
	}
	begin := time.Now()
	first := e.campaign("first", c.named("first"))
	t := receive(c, "the next leader after one that died", first)
	c.Logf("taking over from a leader that died took %v, of a lease of %v", time.Since(begin), c.h.TTL)
	c.within("taking over from a leader that died", begin, c.over()+pollLimit)
	if left := gone.Deadline().Left(); left > 0 {
		c.Errorf("the next leader leads %v before the end of the old leader's lease", left)
	}
	t = e.leads(t, first)
	e.giveUp()
	for i := range 3 {
		name := fmt.Sprint("next ", i)
		l := c.named(name)
		next := e.campaign(name, l)
		e.queues(l)
		begin := time.Now()
		close(t.resign)
		t = receive(c, "the next leader after one that resigned", next)
		limit := wakeUp
		if _, polls := c.h.Cannot[WakeUp]; polls {
			limit = pollLimit
		}
		c.Logf("taking over from a leader that resigned took %v", time.Since(begin))
		c.within("taking over from a leader that resigned", begin, limit+overrun)
		t = e.leads(t, next)
	}
	close(t.resign)
	e.end()
}

// A leader that is cut off has stopped leading before the next one leads. It campaigns again when
// its network works again.
func leaderCutOff(c *trial) {
	e := newElection(c)
	l, faults := c.namedFaulty("first")
	first := e.campaignFor("first", l, c.h.TTL)
	old := receive(c, "the first leader", first)
	other := c.named("second")
	second := e.campaign("second", other)
	e.queues(other)
	begin := time.Now()
	faults.Silence()
	t := receive(c, "the next leader after one that was cut off", second)
	c.within("taking over from a leader that was cut off", begin, 2*c.over()+pollLimit) // a renewal may just have been sent
	c.lost("Check of a leader that was cut off", lock.Check(old.ctx))
	c.ended(old.ctx)
	t = e.leads(t, second)
	faults.Heal()
	time.Sleep(100 * time.Millisecond)
	close(t.resign)
	t = e.leads(receive(c, "the second term of the leader that was cut off", first), first)
	close(t.resign)
	e.end()
}

// A candidate that is cut off during its campaign does not lead. The candidates behind it lead
// first, and it leads when its network works again.
func campaignCutOff(c *trial) {
	e := newElection(c)
	t := receive(c, "the first leader", e.campaign("first", c.named("first")))
	l, faults := c.namedFaulty("second")
	second := e.campaignFor("second", l, c.h.TTL)
	e.queues(l)
	behind := c.named("third")
	third := e.campaign("third", behind)
	e.queues(behind)
	faults.Silence()
	begin := time.Now()
	close(t.resign)
	t = receive(c, "the candidate behind one that is cut off", third)
	c.within("passing over a candidate that is cut off", begin, c.over()+2*pollLimit)
	t = e.leads(t, third)
	faults.Heal()
	close(t.resign)
	t = e.leads(receive(c, "the candidate that was cut off in its campaign", second), second)
	close(t.resign)
	e.end()
}
