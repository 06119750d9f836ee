package lock

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// AcquireAll takes all the locks or none. It waits for them one after the other in
// an order that is the same for every call in every process (by backend, then
// key), so that two calls can't wait for each other. While it waits for one it holds
// none that comes after that. To save round trips, mutexes are first tried all at once: in
// few commands if the engine is a driver.BatchAcquirer, otherwise by goroutines if there are
// four or more. A key that is named twice is taken once; if its two policies differ, the call
// fails with [ErrInvalid]. A lease that is not renewed (NoRenew, Max) must last until the call
// has the last lock: if it is over sooner, all locks are taken again, and the fourth time the
// call fails with [ErrNotAcquired]. Otherwise AcquireAll is like [Locker.Acquire]; each
// policy's Wait counts from the call.
func (l *Locker) AcquireAll(ctx context.Context, reqs ...Request) (context.Context, *Hold, error) {
	reqs, err := l.inOrder(reqs)
	if err != nil {
		return ctx, nil, l.reject(ctx, reqs[0].Policy, reqs[0].Key, l.nowIfObserved(), err)
	}
	switch {
	case len(reqs) == 0:
		return ctx, nil, l.reject(ctx, defaultPolicy, "", l.nowIfObserved(), invalidf("AcquireAll needs a request"))
	case len(reqs) == 1 && !reqs[0].Policy.listed:
		return l.Acquire(ctx, reqs[0].Policy, reqs[0].Key)
	}
	return l.acquireSeveral(ctx, reqs)
}

// Requests returns one request under p for each key, for AcquireAll. A generated wrapper
// calls it for a method whose directive names a slice, "<ids...>". Without a key it
// returns one request, which AcquireAll refuses with [ErrInvalid]: a method that no lock
// guards must not run. The error names the method of p. Under the locks [Token] is
// (0, false), even if there is only one, so that code that works with one element works
// with two: name one with [TokenOf].
func Requests(p *Policy, keys []string) []Request {
	list := *cmp.Or(p, defaultPolicy)
	list.listed = true
	if len(keys) == 0 {
		return []Request{{Policy: &list}}
	}
	reqs := make([]Request, len(keys))
	for i, key := range keys {
		reqs[i] = Request{Policy: &list, Key: key}
	}
	return reqs
}

// inOrder returns reqs sorted into the global order, policies complete and
// repeated keys dropped. If two policies of one key differ in more than the names of
// their method and pattern, it returns the first of the two and an error.
func (l *Locker) inOrder(reqs []Request) ([]Request, error) {
	reqs = slices.Clone(reqs)
	var given *Policy
	for i := range reqs {
		if i > 0 && reqs[i].Policy == given {
			reqs[i].Policy = reqs[i-1].Policy // one copy for all elements of a list
			continue
		}
		given = reqs[i].Policy
		reqs[i].Policy = l.complete(given)
	}
	slices.SortStableFunc(reqs, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Policy.Backend, b.Policy.Backend), cmp.Compare(a.Key, b.Key))
	})
	same := func(a, b Request) bool { return a.Key == b.Key && a.Policy.Backend == b.Policy.Backend }
	for i := 1; i < len(reqs); i++ {
		if a, b := reqs[i-1], reqs[i]; same(a, b) && a.Policy.terms() != b.Policy.terms() {
			return reqs[i-1 : i], invalidf("two policies for one key differ: %s; give both locks the same", differences(a.Policy, b.Policy))
		}
	}
	return slices.CompactFunc(reqs, same), nil
}

// acquireSeveral takes reqs, which are in the global order, and makes one
// context that owns them all. Keys that the chain holds already are re-entered.
func (l *Locker) acquireSeveral(ctx context.Context, reqs []Request) (context.Context, *Hold, error) {
	outer := owned(ctx)
	for _, r := range reqs { // all of them before the first is sent
		if err := l.precheck(outer, r); err != nil {
			return ctx, nil, l.reject(ctx, r.Policy, r.Key, l.nowIfObserved(), err)
		}
	}
	var noted *Policy
	for _, r := range reqs {
		if outer != nil && r.Policy != noted && outer.find(l, r.Policy.Backend, r.Key) == nil {
			noted = r.Policy
			l.noteOrders(ctx, outer, r.Policy, r.Key)
		}
	}
	ends := make([]time.Time, len(reqs))
	for i, r := range reqs {
		ends[i] = l.waitEnd(r.Policy)
	}
	called := l.nowIfObserved()
	for round := 1; ; round++ {
		held, err := l.takeSeveral(ctx, outer, reqs, ends)
		if err == nil {
			return held.frame.ctx, held, nil
		}
		lost, ok := err.(*lostEarly)
		if !ok {
			return ctx, nil, err
		}
		if round > maxLateGrants && !lost.renews() {
			return ctx, nil, l.reject(ctx, lost.policy, lost.entry.id.key, called, because(ErrNotAcquired, lost))
		}
	}
}

// precheck returns the error that r is certain to end with, or nil.
func (l *Locker) precheck(outer *frame, r Request) error {
	if r.Policy.listed && r.Key == "" {
		list := "the list"
		if r.Policy.Pattern != "" {
			list = r.Policy.Pattern + ": " + list
		}
		return invalidf("%s has no element, or an empty key", list)
	}
	if err := l.validate(r.Policy, r.Key); err != nil {
		return err
	}
	switch f := outer.find(l, r.Policy.Backend, r.Key); {
	case f != nil && f.hold().checkReentry(r.Policy) != nil:
		return f.hold().checkReentry(r.Policy)
	case f == nil && outer.heldElsewhere(l, l.backend(r.Policy.Backend), r.Key):
		return errNestedElsewhere
	}
	return nil
}

// lostEarly is the error that one lock was lost while the call waited for another. Nothing has
// run, so all are taken again. If the lease is not renewed this is done a few times only,
// because each time keeps other calls from the locks.
type lostEarly struct{ *hold }

func (e *lostEarly) Error() string {
	return "its lease, which is not renewed, was over before the call had the other locks; a longer ttl (or max) is needed"
}

func (l *Locker) takeSeveral(ctx context.Context, outer *frame, reqs []Request, ends []time.Time) (_ *Hold, err error) {
	method := &methodContext{caller: ctx}
	all := &Hold{method: method, frame: outer, holds: make([]*Hold, 0, len(reqs))}
	defer func() {
		if err != nil {
			method.end(err)
			releasePart(ctx, all.holds, ends)
		}
	}()
	for conflicts := 0; len(all.holds) < len(reqs); {
		if size := l.countTriable(outer, reqs[len(all.holds):]); size > 0 && conflicts < maxConflicts {
			done, err := l.takeTogether(ctx, all, reqs, ends, size)
			if err != nil {
				return nil, err
			}
			if done {
				continue
			}
			conflicts++
		}
		i, called := len(all.holds), l.nowIfObserved()
		r := reqs[i]
		one, err := l.takeOne(ctx, outer, all.frame, r, ends[i])
		if err != nil {
			return nil, l.reject(ctx, r.Policy, r.Key, called, err)
		}
		if one.parent != nil {
			l.observeEntry(ctx, Reentered, r.Policy, one.frame.hold(), called)
		} else {
			l.observeHold(ctx, one.frame.hold(), called)
		}
		all.add(one)
	}
	for _, one := range all.holds {
		// By the clock: a process that was paused may be ahead of its watchdog.
		if h := one.frame.hold(); one.parent == nil && h.check() != nil {
			return nil, &lostEarly{h}
		}
	}
	for _, one := range all.holds {
		if one.parent == nil {
			method.caller = method.traceHold(l.methodCaller(method.caller, one.frame.hold()), one.frame.hold())
		}
	}
	for _, one := range all.holds {
		if one.parent == nil {
			one.frame.hold().setMethod(method)
		}
	}
	all.frame.several = true
	all.frame.ctx = &ownedContext{Context: method, frame: all.frame}
	return all, nil
}

// add makes one the last of the locks of h, and the innermost of their chain.
func (h *Hold) add(one *Hold) {
	one.frame.outer, one.method = h.frame, h.method
	h.frame = one.frame
	h.holds = append(h.holds, one)
}

// releasePart releases the locks of a call that did not get all. It blocks as long as a
// release may, and no longer than 100 ms after ctx or the first of ends.
func releasePart(ctx context.Context, holds []*Hold, ends []time.Time) {
	if len(holds) == 0 {
		return
	}
	if end := earliest(ends); !end.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		ctx = bounded
	}
	if ctx.Err() != nil {
		releaseAll(endedContext, holds, nil)
		return
	}
	bounded := newReleaseContext(ctx, time.Now())
	defer bounded.finish()
	releaseAll(bounded, holds, nil)
}

// earliest returns the first of ends. A zero time never comes.
func earliest(ends []time.Time) (first time.Time) {
	for _, end := range ends {
		if !end.IsZero() && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first
}

// takeOne takes or re-enters one lock, and makes no context for it. chain is outer and the
// locks that the call has taken so far.
func (l *Locker) takeOne(ctx context.Context, outer, chain *frame, r Request, end time.Time) (*Hold, error) {
	if f := outer.find(l, r.Policy.Backend, r.Key); f != nil {
		return f.reenter(ctx, outer, r.Policy, end)
	}
	s, err := l.admit(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	h, err := l.take(ctx, chain, s, r.Policy, r.Key, end)
	if err != nil {
		l.leave(s)
		return nil, err
	}
	one := &Hold{frame: &frame{}}
	one.frame.current.Store(h)
	return one, nil
}
