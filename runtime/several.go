package lock

import (
	"context"
	"errors"
	"time"
)

// acquireSeveral takes reqs, which are in the global order, and makes one
// context that owns them all. Keys that the chain holds already are re-entered.
func (l *Locker) acquireSeveral(ctx context.Context, reqs []Request) (context.Context, *Hold, error) {
	outer := owned(ctx)
	for _, r := range reqs { // all of them before the first is sent
		if err := l.foresee(outer, r); err != nil {
			return ctx, nil, l.reject(r.Policy, r.Key, l.observedSince(), err)
		}
	}
	ends := make([]time.Time, len(reqs))
	for i, r := range reqs {
		ends[i] = l.waitEnd(r.Policy)
	}
	for {
		held, err := l.takeSeveral(ctx, outer, reqs, ends)
		if err == nil {
			return held.ctx, held, nil
		}
		if !errors.Is(err, errLostEarly) {
			return ctx, nil, err
		}
	}
}

// foresee returns the error that r is bound to end with, if any is known.
func (l *Locker) foresee(outer *frame, r Request) error {
	if err := l.vet(r.Policy, r.Key); err != nil {
		return err
	}
	switch f := outer.find(l, r.Policy.Backend, r.Key); {
	case f != nil && !r.Policy.Reentrant:
		return errNested
	case f == nil && outer.heldElsewhere(l, l.backends[r.Policy.Backend], r.Key):
		return errNestedElsewhere
	}
	return nil
}

// errLostEarly says that one lock was lost while the call waited for another.
// Nothing has run; all is taken anew.
var errLostEarly = errors.New("lost before the method began")

func (l *Locker) takeSeveral(ctx context.Context, outer *frame, reqs []Request, ends []time.Time) (_ *Hold, err error) {
	method := &methodContext{caller: ctx}
	all := &Hold{caller: ctx, method: method}
	done := false
	defer func() {
		if done {
			return
		}
		if err == nil { // an Observer has panicked
			err = errReturned
		}
		method.end(err)
		giveUp(ctx, all.rest, ends)
	}()
	chain := outer
	for i, r := range reqs {
		called := l.observedSince()
		one, err := l.takeOne(ctx, outer, r, ends[i])
		if err != nil {
			return nil, l.reject(r.Policy, r.Key, called, err)
		}
		if one.parent != nil {
			l.observeReentry(one, r.Policy, called)
		} else {
			l.observeHold(one.frame.hold, called)
		}
		one.frame.outer, one.method = chain, method
		chain = one.frame
		all.rest = append(all.rest, one)
	}
	for _, one := range all.rest {
		if one.parent != nil {
			continue
		}
		// By the clock: a process that was paused may be ahead of its watchdog.
		if one.frame.hold.begin(method); one.frame.hold.check() != nil {
			return nil, errLostEarly
		}
	}
	chain.several = true
	all.frame = chain
	chain.ctx = &ownedContext{Context: method, frame: chain}
	all.ctx = chain.ctx
	done = true
	return all, nil
}

// giveUp releases what a call under ctx has taken that can't have the rest. It holds
// that call up for as long as a release does, the first of ends being an end of ctx too.
func giveUp(ctx context.Context, rest []*Hold, ends []time.Time) {
	if len(rest) == 0 {
		return
	}
	if end := earliest(ends); !end.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		ctx = bounded
	}
	if ctx.Err() != nil {
		releaseAll(ended, rest, nil)
		return
	}
	bounded := newReleaseContext(ctx)
	defer bounded.finish()
	releaseAll(bounded, rest, nil)
}

// earliest returns the first of ends, of which those that are zero never come.
func earliest(ends []time.Time) (first time.Time) {
	for _, end := range ends {
		if !end.IsZero() && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first
}

// takeOne takes or re-enters one lock, and makes no context for it.
func (l *Locker) takeOne(ctx context.Context, outer *frame, r Request, end time.Time) (*Hold, error) {
	f := outer.find(l, r.Policy.Backend, r.Key)
	if err := l.admit(ctx, r.Policy, r.Key, f); err != nil {
		return nil, err
	}
	if f != nil {
		held, err := f.reenter(ctx, outer, r.Policy, end)
		if err != nil {
			l.leave()
		}
		return held, err
	}
	h, err := l.take(ctx, r.Policy, r.Key, end)
	if err != nil {
		return nil, err
	}
	return &Hold{caller: ctx, frame: &frame{hold: h}}, nil
}
