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
	// maxGateRefusals is how many attempts the gate refuses for one holder before one attempt asks all members and
	// ignores the gate's refusal: a crash may have left a lease at the gate only. If none has, the first in the
	// gate's queue has had enough time to take the lock.
	maxGateRefusals = 4
	// tryAttempts is how many attempts a caller that does not wait makes while others split the votes.
	tryAttempts = 4
	// minPause and maxPause bound the pause after a split vote.
	minPause, maxPause = 2 * time.Millisecond, time.Second
)

// ballot is the answer of one member to one attempt. vote.mu guards all but the first part.
type ballot struct {
	member  *member
	slot    *slot
	gate    bool
	confirm chan uint64 // the token to raise to

	answered   bool
	sent       driver.Instant
	asked      *driver.Acquisition
	lease      driver.Lease
	base       uint64 // to add to the lease's tokens
	err        error  // of the attempt, or of confirming it
	raised     uint64 // the member's later leases have tokens above it
	eligible   bool   // it may vote
	confirming bool   // it is being confirmed
	joined     bool   // its lease is part of the quorum's
}

// vote is one attempt to acquire, at all members.
type vote struct {
	b         *Backend
	a         *driver.Acquisition
	op        *acquireOp
	ballots   []*ballot
	overrules bool          // the gate's refusal for q.holder does not count
	changed   chan struct{} // receives when a ballot has changed; has room for one
	decided   chan struct{} // closed once the vote is decided; won is not changed after that

	othersAsked chan struct{} // closed when members other than the gate may be asked
	once        sync.Once     // closes it

	mu      sync.Mutex
	granted []*ballot // in the order in which they were granted
	won     *lease
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	if err := b.group.Takes(a, b.options.LongestTTL); err != nil {
		return nil, err
	}
	if left := b.untilVote(); left > 0 {
		return nil, engine.NotYet(left, fmt.Sprintf("no majority of the %d members may vote: those that have restarted may have forgotten locks, and vote in %v",
			len(b.members), left.Round(time.Millisecond)))
	}
	op := b.openOp(a.ID)
	var l *lease
	var err error
	for n := 1; ; n++ {
		l, err = b.attempt(ctx, a, op)
		// A caller that waits calls again. If callers that don't wait split the votes of a free lock, one must get it.
		held := engine.HeldBy(err)
		if a.Queue || op.splits < n || n == tryAttempts || held == nil || !engine.Pause(ctx, held.RetryAfter) {
			break
		}
	}
	b.withLock(func() { op.ended = err == nil || !a.Queue || engine.HeldBy(err) == nil && !a.MayHaveRun })
	if again := b.closeOp(a.ID, op); again {
		a.MayHaveRun = true // so that Undo is called, which ends op
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// attempt makes one attempt at all members.
func (b *Backend) attempt(ctx context.Context, a *driver.Acquisition, op *acquireOp) (*lease, error) {
	v := &vote{b: b, a: a, op: op, changed: make(chan struct{}, 1), decided: make(chan struct{}), othersAsked: make(chan struct{})}
	gate := b.gate(a.Key)
	if v.overrules = b.overrulesGate(op); v.overrules || !a.Queue || !b.contended(a.Key) {
		v.askOthers()
	} else {
		defer time.AfterFunc(gateTimeout, v.askOthers).Stop()
	}
	for i, m := range b.members {
		v.ballots = append(v.ballots, &ballot{member: m, slot: &op.slots[i], gate: m == gate, confirm: make(chan uint64, 1)})
	}
	asked := *a // a copy, because wait changes a
	for _, x := range v.ballots {
		b.withLock(func() { op.users++ })
		b.begin(func() {
			defer b.closeOp(asked.ID, op)
			v.askMember(ctx, x, asked)
		})
	}
	return v.wait(ctx)
}

// askMember asks one member. When the vote is decided, it makes the member's grant part of the lease, or
// undoes it. It goes on if the caller leaves.
func (v *vote) askMember(ctx context.Context, x *ballot, a driver.Acquisition) {
	if !v.waitToAsk(x) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	limited, cancel := v.b.limited(ctx, a.TTL)
	defer cancel()
	if err := x.slot.lock(limited); err != nil {
		v.update(x, func() { x.answered, x.err = true, errSilent })
		<-v.decided
		if v.won != nil {
			v.b.leaveQueueLater(ctx, x, &a)
		}
		return
	}
	defer x.slot.unlock()
	select {
	case <-v.decided:
		if v.won == nil {
			// The next attempt has the same ID and may hold the member's lock by now. This one
			// would be granted the same lock, and would release it.
			return
		}
	default:
	}
	asked, sent := v.b.request(&a, x.slot, x.gate), driver.Now()
	l, err := x.member.acquire(limited, asked, v.decided)
	var base uint64
	if l != nil && x.member.base != nil {
		base, err = x.member.base.swap(limited, "", "")
	}
	v.b.withLock(func() { x.slot.placed = x.slot.placed || asked.MayBeGranted }) // before the caller learns of it
	v.update(x, func() {
		x.answered, x.sent, x.asked, x.lease, x.base, x.err = true, sent, asked, l, base, err
		if l != nil {
			first, n := l.Tokens()
			x.raised = base + first + n - 1
			v.granted = append(v.granted, x)
		}
	})
	if x.gate && engine.HeldBy(err) == nil {
		v.askOthers()
	}
	v.confirmAll(ctx, x, a.TTL)
	if l != nil && v.won != nil && (x.joined || v.won.join(x)) {
		return
	}
	if v.won != nil && l == nil && x.slot.placed {
		v.b.leaveQueue(ctx, x, &a)
	}
	if v.b.takeBack(ctx, x, a.TTL) {
		v.b.withLock(func() { x.slot.generation, x.slot.placed = x.slot.generation+1, false })
	}
}

// confirmAll confirms x's lease as often as the vote asks for it, until the vote is decided.
func (v *vote) confirmAll(ctx context.Context, x *ballot, ttl time.Duration) {
	for {
		select {
		case least := <-x.confirm:
			err := v.b.confirm(ctx, x, ttl, least)
			v.update(x, func() {
				if x.confirming, x.err = false, err; err == nil {
					x.eligible, x.raised = true, max(x.raised, least)
				}
			})
		case <-v.decided:
			return
		}
	}
}

// update changes x, and wakes wait to decide again.
func (v *vote) update(x *ballot, change func()) {
	v.mu.Lock()
	change()
	v.mu.Unlock()
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// confirm makes x a vote that counts: it checks that the member remembers every lock that it has granted,
// raises the tokens of the member's later leases above least, and renews a provisional lease.
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
	if !x.eligible {
		err = x.member.mayVote(ctx, x.sent)
		if p, ok := x.lease.(driver.ProvisionalLease); ok && err == nil && p.Term() < ttl {
			err = x.lease.Renew(ctx, ttl)
		}
	}
	return errors.Join(err, <-raised)
}

// wait waits until the vote is decided.
func (v *vote) wait(ctx context.Context) (*lease, error) {
	begun := time.Now()
	for {
		v.mu.Lock()
		done, err := v.decide(time.Since(begun))
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

// decide decides the vote if that is possible. Else it asks for confirmations of the first majority that has
// granted the key. The highest of their tokens is the lease's.
func (v *vote) decide(took time.Duration) (done bool, err error) {
	refused, pending, gate := v.tally()
	var held *driver.HeldError // by the gate
	if gate != nil && gate.answered {
		held = engine.HeldBy(gate.err)
	}
	if held != nil && v.gateOnly() {
		v.b.noteGateRefusal(v.a.Key, v.op, held)
		return true, gate.err
	}
	voters := slices.DeleteFunc(slices.Clone(v.granted), func(x *ballot) bool { return x.err != nil })
	switch yes := len(voters); {
	case yes < v.b.majority && (yes+pending >= v.b.majority || yes+refused < v.b.majority && yes+refused+pending >= v.b.majority):
		return false, nil // the vote may still be won, or it is not known yet whether a majority answers
	case yes < v.b.majority && gate != nil && !gate.answered:
		// A caller that will wait must be in the gate's queue first. Else the lock may be released
		// before the gate is asked, and nobody would notify the caller.
		return false, nil
	case yes < v.b.majority:
		return true, v.refusal(yes, took)
	}
	if held != nil && !(v.overrules && held.Holder == v.op.gateHolder) {
		v.b.noteGateRefusal(v.a.Key, v.op, held)
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
		if x.eligible && x.raised >= least {
			continue
		}
		ready = false
		if !x.confirming {
			x.confirming = true
			x.confirm <- least
		}
	}
	if ready {
		v.won = newLease(v.b, v.a, token)
		for _, x := range v.granted {
			x.joined = v.won.join(x)
		}
	}
	return ready, nil
}

// tally counts the members that refuse and those that have not answered, and returns the ballot of the
// gate, if the caller will wait. It sets MayBeGranted of the acquisition if a member has set it.
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

// refused reports whether the member has answered that it does not grant the key, and when to ask again.
func (x *ballot) refused() (after time.Duration, no bool) {
	if held := engine.HeldBy(x.err); held != nil {
		return held.RetryAfter, true
	}
	return 0, errors.Is(x.err, driver.ErrLost) // the grant was over before it was confirmed
}

// refusal returns the error of an attempt that yes members had granted.
func (v *vote) refusal(yes int, took time.Duration) error {
	var left []time.Duration // until the leases of others end
	split := yes > 0
	for _, x := range v.ballots {
		if after, no := x.refused(); no {
			left = append(left, after)
		}
		split = split || x.lease != nil
	}
	if yes+len(left) < v.b.majority {
		return v.failure(nil)
	}
	slices.Sort(left)
	held := &driver.HeldError{RetryAfter: left[min(max(v.b.majority-yes, 1), len(left))-1]}
	if split {
		// Others may ask at the same time, each with a minority; or the gate was just granted to
		// the first in its queue. Each pauses for a random time, which grows with each attempt.
		var times int
		v.b.withLock(func() { v.op.splits++; times = v.op.splits })
		pause := max(minPause, took) << min(times, 10)
		pause = min(pause/2+rand.N(pause), maxPause)
		if held.RetryAfter == 0 || pause < held.RetryAfter || yes >= v.b.majority {
			held.RetryAfter = pause
		}
	}
	return held
}

// failure returns the error of an attempt that no majority has answered. cause is why the caller waits no
// longer, or nil. The error is a HeldError or ErrConflict only if a majority says so, and never ErrLost,
// because the caller has held nothing. It is [engine.NotYet] if a majority has answered, but some of them may
// not vote yet.
func (v *vote) failure(cause error) error {
	errs := []error{cause}
	unknown, forgetful := false, false
	answered, held, conflicts := 0, 0, 0 // answered: members that granted, that may not vote yet, or that say it is held
	for _, x := range v.ballots {
		unknown = unknown || !x.answered || errors.Is(x.err, driver.ErrIndeterminate)
		if young := errors.Is(x.err, errForgetful); young || engine.HeldBy(x.err) != nil || x.lease != nil && x.err == nil {
			forgetful, answered = forgetful || young, answered+1
		}
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
		return err // the members that refuse it have sent nothing
	}
	err := fmt.Errorf("no majority of the %d members: %w", len(v.ballots), errors.Join(errs...))
	v.a.MayHaveRun = v.a.MayHaveRun || unknown
	if forgetful && answered >= v.b.majority && cause == nil {
		return engine.NotYet(0, err.Error()) // no time: Redis tells its age in whole seconds, so by votesAt waiters would ask all through the last one
	}
	if unknown && !errors.Is(err, driver.ErrIndeterminate) {
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return err
}
