package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// overrule is how many attempts the gate refuses for one holder before one attempt asks all and disregards
	// its refusal: a crash may have left a lease there alone, and who is first in its queue has had the time
	// to take the lock.
	overrule = 4
	// attempts is how many are made for who only tries, while others ask at the same time.
	attempts = 4
	// nearest and farthest bound the pause after an attempt that some member granted.
	nearest, farthest = 2 * time.Millisecond, time.Second
)

// ballot is what one member says to one attempt. vote.mu guards it, but for the first part.
type ballot struct {
	member  *member
	slot    *slot
	gate    bool
	confirm chan uint64 // the token to raise to

	answered bool
	sent     driver.Instant
	asked    *driver.Acquisition
	lease    driver.Lease
	base     uint64 // is added to the lease's tokens
	err      error  // of the attempt, or of what followed
	raised   uint64 // the member's later leases have tokens above it
	may      bool   // it may vote
	busy     bool   // it is being confirmed
	joined   bool   // its lease is part of the quorum's
}

// vote is one attempt to acquire, at all members.
type vote struct {
	b         *Backend
	a         *driver.Acquisition
	q         *acquiring
	ballots   []*ballot
	overrules bool          // the gate's refusal for q.holder does not count
	changed   chan struct{} // has room for one: a ballot has
	decided   chan struct{} // closed once won is set or stays nil

	admitted chan struct{} // closed when the others than the gate may be asked
	once     sync.Once     // closes it

	mu    sync.Mutex
	order []*ballot // that were granted, as they came
	won   *lease
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	if err := b.group.Takes(a, b.options.LongestTTL); err != nil {
		return nil, err
	}
	q := b.enter(a.ID)
	var l *lease
	var err error
	for n := 1; ; n++ {
		l, err = b.ask(ctx, a, q)
		// Who waits calls again. Of those that only try, and split the votes of a free lock, one is to get it.
		held := engine.HeldBy(err)
		if a.Queue || q.near < n || n == attempts || held == nil || !engine.Pause(ctx, held.RetryAfter) {
			break
		}
	}
	b.change(func() { q.ended = err == nil || !a.Queue || engine.HeldBy(err) == nil && !a.MayHaveRun })
	if again := b.leave(a.ID, q); again {
		a.MayHaveRun = true // so that Undo forgets it
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ask makes one attempt, at all members.
func (b *Backend) ask(ctx context.Context, a *driver.Acquisition, q *acquiring) (*lease, error) {
	v := &vote{b: b, a: a, q: q, changed: make(chan struct{}, 1), decided: make(chan struct{}), admitted: make(chan struct{})}
	gate := b.gate(a.Key)
	if v.overrules = b.overrules(q); v.overrules || !a.Queue || !b.contended(a.Key) {
		v.admit()
	} else {
		defer time.AfterFunc(gatePatience, v.admit).Stop()
	}
	for i, m := range b.members {
		v.ballots = append(v.ballots, &ballot{member: m, slot: &q.slots[i], gate: m == gate, confirm: make(chan uint64, 1)})
	}
	asked := *a // which count changes
	for _, x := range v.ballots {
		b.change(func() { q.users++ })
		b.begin(func() {
			defer b.leave(asked.ID, q)
			v.ask(ctx, x, asked)
		})
	}
	return v.count(ctx)
}

// ask has one member vote, and does with its grant what the vote decides. It goes on when the
// caller has gone: what a member was asked for is either part of the lease or undone.
func (v *vote) ask(ctx context.Context, x *ballot, a driver.Acquisition) {
	if !v.mayAsk(x) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	limited, cancel := v.b.limited(ctx, a.TTL)
	defer cancel()
	if err := x.slot.take(limited); err != nil {
		v.note(x, func() { x.answered, x.err = true, errSilent })
		<-v.decided
		if v.won != nil {
			v.b.leaveQueueLater(ctx, x, &a)
		}
		return
	}
	defer x.slot.give()
	select {
	case <-v.decided:
		if v.won == nil {
			// The next attempt has the same ID and may hold the member by now: what this one
			// would be granted, and give back, is that.
			return
		}
	default:
	}
	asked, sent := v.b.attempt(&a, x.slot, x.gate), driver.Now()
	l, err := x.member.acquire(limited, asked, v.decided)
	var base uint64
	if l != nil && x.member.base != nil {
		base, err = x.member.base.swap(limited, "", "")
	}
	v.b.change(func() { x.slot.placed = x.slot.placed || asked.MayBeGranted }) // before the caller knows, and leaves
	v.note(x, func() {
		x.answered, x.sent, x.asked, x.lease, x.base, x.err = true, sent, asked, l, base, err
		if l != nil {
			first, n := l.Tokens()
			x.raised = base + first + n - 1
			v.order = append(v.order, x)
		}
	})
	if x.gate && engine.HeldBy(err) == nil {
		v.admit()
	}
	v.confirmAll(ctx, x, a.TTL)
	if l != nil && v.won != nil && (x.joined || v.won.join(x)) {
		return
	}
	if v.won != nil && l == nil && x.slot.placed {
		v.b.leaveQueue(ctx, x, &a)
	}
	if v.b.takeBack(ctx, x, a.TTL) {
		v.b.change(func() { x.slot.generation, x.slot.placed = x.slot.generation+1, false })
	}
}

// confirmAll does what the vote asks of x's lease until it is decided.
func (v *vote) confirmAll(ctx context.Context, x *ballot, ttl time.Duration) {
	for {
		select {
		case least := <-x.confirm:
			err := v.b.confirm(ctx, x, ttl, least)
			v.note(x, func() {
				if x.busy, x.err = false, err; err == nil {
					x.may, x.raised = true, max(x.raised, least)
				}
			})
		case <-v.decided:
			return
		}
	}
}

// limited returns ctx with the time that one member has.
func (b *Backend) limited(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout(ttl))
	stop := context.AfterFunc(b.group.Life.Context(), cancel)
	return ctx, func() { stop(); cancel() }
}

// note changes x, and has count look.
func (v *vote) note(x *ballot, change func()) {
	v.mu.Lock()
	change()
	v.mu.Unlock()
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// confirm makes x a vote that counts: its member remembers all that it had granted, its later
// leases have tokens above least, and its lease has its whole length.
func (b *Backend) confirm(ctx context.Context, x *ballot, ttl time.Duration, least uint64) error {
	ctx, cancel := b.limited(ctx, ttl)
	defer cancel()
	raised := make(chan error, 1)
	if x.raised < least {
		b.begin(func() { raised <- x.member.raiser.RaiseToken(ctx, x.lease, least) })
	} else {
		raised <- nil
	}
	var err error
	if !x.may {
		err = x.member.mayVote(ctx, x.sent)
		if p, ok := x.lease.(driver.ProvisionalLease); ok && err == nil && p.Term() < ttl {
			err = x.lease.Renew(ctx, ttl)
		}
	}
	return errors.Join(err, <-raised)
}

// count waits until the vote is decided.
func (v *vote) count(ctx context.Context) (*lease, error) {
	begun := time.Now()
	for {
		v.mu.Lock()
		done, err := v.look(time.Since(begun))
		if !done && ctx.Err() != nil {
			done, err = true, v.failure(ctx.Err())
		}
		if done {
			close(v.decided)
			v.mu.Unlock()
			return v.won, err
		}
		v.mu.Unlock()
		select {
		case <-v.changed:
		case <-ctx.Done():
		}
	}
}

// look decides the vote if it can be, and else has those confirmed that are to decide it: the
// first majority that granted, whose highest token is that of the lease.
func (v *vote) look(took time.Duration) (done bool, err error) {
	refused, pending, gate := v.tally()
	var held *driver.HeldError // by the gate
	if gate != nil && gate.answered {
		held = engine.HeldBy(gate.err)
	}
	if held != nil && v.alone() {
		v.b.gated(v.a.Key, v.q, held)
		return true, gate.err
	}
	voters := slices.DeleteFunc(slices.Clone(v.order), func(x *ballot) bool { return x.err != nil })
	switch yes := len(voters); {
	case yes < v.b.majority && (yes+pending >= v.b.majority || yes+refused < v.b.majority && yes+refused+pending >= v.b.majority):
		return false, nil // it may be won yet, or it is not known whether a majority answers
	case yes < v.b.majority && gate != nil && !gate.answered:
		// Who is to wait stands in the gate's queue first: else the lock may be free by the time
		// that the gate is asked, and nobody would tell the caller.
		return false, nil
	case yes < v.b.majority:
		return true, v.refusal(yes, took)
	}
	if held != nil && !(v.overrules && held.Holder == v.q.holder) {
		v.b.gated(v.a.Key, v.q, held)
		return true, v.refusal(len(voters), took)
	}
	voters = voters[:v.b.majority]
	var token uint64
	for _, x := range voters {
		first, _ := x.lease.Tokens()
		token = max(token, x.base+first)
	}
	least, ready := token+v.a.Tokens-1, true
	for _, x := range voters {
		if x.may && x.raised >= least {
			continue
		}
		ready = false
		if !x.busy {
			x.busy = true
			x.confirm <- least
		}
	}
	if ready {
		v.won = newLease(v.b, v.a, token)
		for _, x := range v.order {
			x.joined = v.won.join(x)
		}
	}
	return ready, nil
}

// tally counts the members that refuse and those that have not answered, and returns the ballot of the
// gate, if the caller will wait. The acquisition may be granted by itself where a member's may.
func (v *vote) tally() (refused, pending int, gate *ballot) {
	for _, x := range v.ballots {
		if x.gate && v.a.Queue {
			gate = x
		}
		if !x.answered {
			pending++
		}
		if _, no := x.refused(); no {
			refused++
		}
		if x.answered && x.asked != nil {
			v.a.MayBeGranted = v.a.MayBeGranted || x.asked.MayBeGranted
		}
	}
	return refused, pending, gate
}

// refused reports whether the member has answered that it does not grant the key, and after what time it may.
func (x *ballot) refused() (after time.Duration, no bool) {
	if held := engine.HeldBy(x.err); held != nil {
		return held.RetryAfter, true
	}
	return 0, errors.Is(x.err, driver.ErrLost) // granted, and over before it was confirmed
}

// refusal returns why the attempt failed, of which so many members had granted it.
func (v *vote) refusal(yes int, took time.Duration) error {
	var left []time.Duration // of those that hold it
	near := yes > 0
	for _, x := range v.ballots {
		if after, no := x.refused(); no {
			left = append(left, after)
		}
		near = near || x.lease != nil
	}
	if yes+len(left) < v.b.majority {
		return v.failure(nil)
	}
	slices.Sort(left)
	held := &driver.HeldError{RetryAfter: left[min(max(v.b.majority-yes, 1), len(left))-1]}
	if near {
		// Others may ask at the same time, each with a minority; or the gate has just been given
		// to who is first in its queue. Each waits a while, by chance, and longer each time.
		var times int
		v.b.change(func() { v.q.near++; times = v.q.near })
		pause := max(nearest, took) << min(times, 10)
		pause = min(pause/2+rand.N(pause), farthest)
		if held.RetryAfter == 0 || pause < held.RetryAfter || yes >= v.b.majority {
			held.RetryAfter = pause
		}
	}
	return held
}

// failure is the error of an attempt that was not answered by a majority; because of cause,
// if the caller did not wait for it. It is a HeldError or ErrConflict only if a majority says so, and
// no ErrLost: the caller has held nothing.
func (v *vote) failure(cause error) error {
	errs := []error{cause}
	unknown, held, conflicts := false, 0, 0
	for _, x := range v.ballots {
		unknown = unknown || !x.answered || errors.Is(x.err, driver.ErrIndeterminate)
		switch {
		case engine.HeldBy(x.err) != nil:
			held++
		case errors.Is(x.err, driver.ErrConflict):
			conflicts++
		}
	}
	for _, x := range v.ballots {
		if x.err == nil {
			continue
		}
		err := driver.Locate(x.member.Backend, x.err)
		if held < v.b.majority && engine.HeldBy(err) != nil || conflicts < v.b.majority && errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrLost) {
			err = errors.New(err.Error())
		}
		errs = append(errs, fmt.Errorf("member %q: %w", x.member.name, err))
	}
	if err := errors.Join(errs...); cause == nil && errors.Is(err, driver.ErrInvalid) {
		return err // no member that has its like has taken what these refuse unsent
	}
	err := fmt.Errorf("no majority of the %d members: %w", len(v.ballots), errors.Join(errs...))
	if unknown {
		v.a.MayHaveRun = true
		if !errors.Is(err, driver.ErrIndeterminate) {
			err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
	}
	return err
}
