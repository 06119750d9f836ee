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

// court is a leadership that several processes campaign for. It judges as each term
// begins: nobody else leads, by its own Check, and tokens rise.
type court struct {
	*trial
	key    string
	policy *lock.Policy
	watch  *lock.Locker // who asks the engine who leads

	mu      sync.Mutex // guards the rest
	terms   []*term    // that have not returned
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
	over   chan struct{} // closed when it has returned
}

func newCourt(c *trial) *court {
	p := &lock.Policy{Leader: true, TTL: c.long()}
	return &court{trial: c, key: c.newKey(), policy: p, watch: c.locker()}
}

// campaign has a process of this name campaign through l, until a term ends with its
// resignation. Each of its terms comes out of the channel.
func (k *court) campaign(name string, l *lock.Locker) <-chan *term {
	return k.campaignFor(name, l, k.policy.TTL)
}

// campaignFor is campaign with leases of another length: brief for who is going to be cut off,
// while those that are not keep theirs on a busy machine.
func (k *court) campaignFor(name string, l *lock.Locker, ttl time.Duration) <-chan *term {
	begun := make(chan *term, 8)
	k.lockers = append(k.lockers, l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(k.Context())) // for as long as the check takes
	k.Cleanup(cancel)
	policy := *k.policy
	policy.TTL = ttl
	k.all.Go(func() {
		if err := l.Lead(ctx, &policy, k.key, func(ctx context.Context) error { return k.lead(ctx, name, l, begun) }); err != nil {
			k.Errorf("%s leads no more: %v", name, err)
		}
	})
	return begun
}

func (k *court) lead(ctx context.Context, name string, l *lock.Locker, begun chan<- *term) error {
	t := &term{name: name, leader: l, ctx: ctx, resign: make(chan struct{}), over: make(chan struct{})}
	token, _ := lock.Token(ctx)
	k.mu.Lock()
	for _, other := range k.terms {
		if lock.Check(ctx) == nil && lock.Check(other.ctx) == nil {
			k.Errorf("%s leads beside %s", name, other.name)
		}
	}
	if token <= k.highest {
		k.Errorf("%s leads with token %d, after %d", name, token, k.highest)
	}
	k.highest = max(k.highest, token)
	k.terms = append(k.terms, t)
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.terms = slices.DeleteFunc(k.terms, func(o *term) bool { return o == t })
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

// queues returns when l, which campaigns while another leads, stands in the engine's queue.
func (k *court) queues(l *lock.Locker) {
	k.Helper()
	for ctx := k.bounded(); len(l.Snapshot().Waiters) == 0; time.Sleep(5 * time.Millisecond) { // it has no answer yet
		if ctx.Err() != nil {
			k.Fatalf("a campaign waits for nobody while another leads")
		}
	}
}

// leads requires that the engine has t for the term. It returns t once its lease is not the
// brief one any more that it began with if it had waited: a late machine may lose that. Then leads
// returns the campaign's next term, out of begun.
func (k *court) leads(t *term, begun <-chan *term) *term {
	k.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		token, _ := lock.Token(t.ctx)
		who, err := k.watch.Leader(k.bounded(), k.policy, k.key)
		switch lost := lock.Check(t.ctx); {
		case lost != nil && k.late(begin.Add(-briefLease), lost):
			t = receive(k.trial, "the next term of "+t.name, begun)
			begin = time.Now()
		case lost != nil || err != nil || who == nil || who.Name != t.name || who.Token != token:
			k.Fatalf("%s leads with token %d (%v); the engine says %+v, %v", t.name, token, lost, who, err)
		case t.left() > min(briefLease, k.h.TTL/2):
			return t
		case time.Since(begin) > k.soon():
			k.Fatalf("%s leads with a lease that lasts %v, and is not renewed", t.name, t.left())
		}
	}
}

// left is how long the lease of the term lasts, as its leader knows.
func (t *term) left() time.Duration {
	token, _ := lock.Token(t.ctx)
	for _, h := range t.leader.Snapshot().Holds {
		if h.Token == token {
			return time.Until(h.Deadline)
		}
	}
	return 0
}

// adjourn ends the campaigns, closes their Lockers, and requires that nothing of them is
// left at the engine.
func (k *court) adjourn() {
	k.Helper()
	ended := make(chan bool, 1)
	go func() { k.all.Wait(); ended <- true }()
	receive(k.trial, "the end of all campaigns", ended)
	for _, l := range k.lockers {
		k.closeLocker(l)
	}
	begin := time.Now()
	who, err := k.watch.Leader(k.bounded(), k.policy, k.key)
	if who != nil || err != nil {
		k.Errorf("all have resigned; the engine says %+v, %v", who, err)
	}
	k.passesByFair(begin)
	_, cannot := k.h.Cannot[Inspection]
	_, clockless := k.h.Cannot[Clock]
	if cannot || clockless {
		return
	}
	var left []string
	for time.Since(begin) < k.soon() {
		if left = k.h.Leftovers(k.T, k.key); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	k.Errorf("candidacies are left at the engine: %v", left)
}

// passesByFair requires that a newcomer leads at once: nobody stands before it.
func (k *court) passesByFair(begin time.Time) {
	k.Helper()
	_, held, err := k.watch.Acquire(k.bounded(), k.policy, k.key)
	if err != nil {
		k.Errorf("nobody is left: %v", err)
		return
	}
	k.within("the leadership that nobody has", begin, pollLimit/2)
	k.leave(held)
}

// giveUp has processes end their campaigns while another leads. If they stayed in the queue,
// each would cost the next leader half a second.
func (k *court) giveUp() {
	k.Helper()
	var all sync.WaitGroup
	for range 3 {
		l := k.named("nobody")
		all.Go(func() {
			ctx, cancel := context.WithCancel(k.bounded())
			defer cancel()
			go func() {
				defer cancel()
				k.queues(l)
			}()
			err := l.Lead(ctx, k.policy, k.key, func(context.Context) error {
				k.Error("one that gave up leads")
				return nil
			})
			k.is("a campaign that was given up", err, lock.ErrNotAcquired)
		})
	}
	all.Wait()
}

// A leader that died is followed when its lease is over, and not before; one that resigns as soon
// as the engine tells the next.
func leaderCrashed(c *trial) {
	k := newCourt(c)
	dead := c.open()
	gone, err := dead.Acquire(c.bounded(), dead.kindOf(k.key, c.h.TTL, driver.Mode{Kind: driver.Fair, Name: "dead"}))
	if err != nil {
		c.Fatalf("a leadership that nobody has: %v", err)
	}
	begin := time.Now()
	first := k.campaign("first", c.named("first"))
	t := receive(c, "the one after a leader that died", first)
	c.Logf("taking over from a leader that died took %v, of a lease of %v", time.Since(begin), c.h.TTL)
	c.within("taking over from a leader that died", begin, c.over()+pollLimit)
	if left := gone.Deadline().Left(); left > 0 {
		c.Errorf("the next one leads %v before the end of a lease", left)
	}
	t = k.leads(t, first)
	k.giveUp()
	for i := range 3 {
		name := fmt.Sprint("next ", i)
		l := c.named(name)
		next := k.campaign(name, l)
		k.queues(l)
		begin := time.Now()
		close(t.resign)
		t = receive(c, "the one after a leader that resigned", next)
		limit := wakeUp
		if _, polls := c.h.Cannot[WakeUp]; polls {
			limit = pollLimit
		}
		c.Logf("taking over from a leader that resigned took %v", time.Since(begin))
		c.within("taking over from a leader that resigned", begin, limit+overrun)
		t = k.leads(t, next)
	}
	close(t.resign)
	k.adjourn()
}

// A leader that is cut off leads no more when the next one does, and campaigns again when it
// is back.
func leaderCutOff(c *trial) {
	k := newCourt(c)
	l, faults := c.namedFaulty("first")
	first := k.campaignFor("first", l, c.h.TTL)
	old := receive(c, "the first leader", first)
	other := c.named("second")
	second := k.campaign("second", other)
	k.queues(other)
	begin := time.Now()
	faults.Silence()
	t := receive(c, "the one after a leader that was cut off", second)
	c.within("taking over from a leader that was cut off", begin, 2*c.over()+pollLimit) // a renewal may just have gone out
	c.lost("Check of a leader that was cut off", lock.Check(old.ctx))
	c.ended(old.ctx)
	t = k.leads(t, second)
	faults.Heal()
	time.Sleep(100 * time.Millisecond)
	close(t.resign)
	t = k.leads(receive(c, "the leader that is back", first), first)
	close(t.resign)
	k.adjourn()
}

// One that is cut off in mid-campaign does not lead: those behind it do, and it does when it
// is back.
func campaignCutOff(c *trial) {
	k := newCourt(c)
	t := receive(c, "the first leader", k.campaign("first", c.named("first")))
	l, faults := c.namedFaulty("second")
	second := k.campaignFor("second", l, c.h.TTL)
	k.queues(l)
	behind := c.named("third")
	third := k.campaign("third", behind)
	k.queues(behind)
	faults.Silence()
	begin := time.Now()
	close(t.resign)
	t = receive(c, "the one behind one that is cut off", third)
	c.within("passing one over that is cut off", begin, c.over()+2*pollLimit)
	t = k.leads(t, third)
	faults.Heal()
	close(t.resign)
	t = k.leads(receive(c, "the one that was cut off in its campaign", second), second)
	close(t.resign)
	k.adjourn()
}
