package history

import (
	"fmt"
	"time"
)

// hearing is how long a signal of a condition may take to reach a waiter while nothing is wrong. If a
// signal reaches a waiter that gives up at that moment, the next waiter gets it half a second later.
const hearing = int64(600 * time.Millisecond)

// extras checks the options of calls other than the kind of lock, for each key:
//
//	K6  when a call with a bound begins to wait, no more calls of its process wait than the bound;
//	    a call that is refused is refused at once and sends nothing, and as many calls as the
//	    bound may have waited then
//	K7  if a lock with a delay was lost or its holder died, the lock is not granted
//	    before its ttl and the delay are over
//	K8  a signal of a condition is not lost: a waiter gets it, unless waiters before it
//	    have got as many
func (s *scan) extras() {
	type place struct {
		proc int
		key  string
	}
	calls := map[place][]Record{}
	waits, called := map[string][]Record{}, map[string][]Record{}
	for _, r := range s.Records {
		switch r.Op {
		case Acquire:
			calls[place{r.Proc, r.Key}] = append(calls[place{r.Proc, r.Key}], r)
		case Await: // acquires the lock again at its end
			calls[place{r.Proc, r.Key}] = append(calls[place{r.Proc, r.Key}], r)
			waits[r.Key] = append(waits[r.Key], r)
		case Signal, Broadcast:
			called[r.Key] = append(called[r.Key], r)
		}
	}
	for _, all := range calls {
		for _, r := range all {
			switch {
			case r.Outcome == TooMany:
				s.refused(r, all)
			case r.Bound > 0 && r.Ret != Never:
				s.admitted(r, all)
			}
		}
	}
	for key, all := range waits {
		for _, w := range all {
			s.unheard(w, all, called[key])
		}
	}
	for _, l := range s.leases {
		s.keptClosed(l)
	}
}

// instant is how far apart two events of a process must be for their order to be certain.
func (s *scan) instant() int64 { return min(s.told, Busy) }

// refused checks K6 for r, which was refused because too many wait. all has the calls of its
// process for its key.
func (s *scan) refused(r Record, all []Record) {
	others := 0
	for _, v := range all {
		if v.Hold != r.Hold && v.Call <= r.Ret && v.Ret >= r.Call {
			others++
		}
	}
	wrong := ""
	switch {
	case others < r.Bound:
		wrong = fmt.Sprintf("refused although at most %d other calls wait, and %d may", others, r.Bound)
	case s.sent[holdKey{r.Proc, r.Hold, r.Key}]:
		wrong = "refused because too many wait, but the engine was asked"
	case r.Ret > r.Call+s.told && !s.wasPaused(r.Proc, r.Call, r.Ret):
		wrong = fmt.Sprintf("refused because too many wait, but only after %v", Between(r.Call, r.Ret))
	default:
		return
	}
	s.report(Violation{Invariant: "K6", Key: r.Key, At: r.Ret, Records: []Record{r}, Text: wrong})
}

// admitted checks K6 for r, which waited. One of the others may be the call that competes at
// the engine. It counts only if the engine has answered that the lock is held. Of permits and readers
// several may compete.
func (s *scan) admitted(r Record, all []Record) {
	moment := s.instant()
	if r.Ret < r.Call+moment || r.Again || r.Several {
		return
	}
	most := r.Bound + 1
	if r.Kind != "" && r.Kind != "write" {
		most = r.Bound
	}
	var waited []Record
	for _, v := range all {
		k := holdKey{v.Proc, v.Hold, v.Key}
		told, shares := s.mustWait[k], v.Kind == "read" || v.Kind == "permits"
		switch h := s.held[k]; {
		case v.Hold == r.Hold || v.Op != Acquire || v.Again || v.Several || v.Kind != r.Kind, shares && (told == 0 || told > r.Call-moment):
		case v.Call < r.Call-moment && v.Ret > r.Call+moment && v.Outcome != TooMany:
			waited = append(waited, v)
		case h != nil && v.Kind == "" && h.grant.Ret < r.Call-moment && h.release != nil && h.release.Call > r.Call+moment &&
			h.release.Outcome != Lost: // otherwise it is not known when the next call began to compete
			most = r.Bound // held in this process, so no call competes
		}
	}
	if len(waited) >= most {
		s.pair("K6", waited[0], r, "waits although %d others wait, and %d may", len(waited), r.Bound)
	}
}

// staysClosed reports whether l has a delay and ended without a release.
func (l *lease) staysClosed() bool {
	h := l.last
	return h != nil && h.grant.Delay > 0 && (h.release == nil || h.release.Outcome == Lost && h.release.Op != Await)
}

// keptClosed checks K7 for l.
func (s *scan) keptClosed(l *lease) {
	h := l.last
	if !l.staysClosed() || l.clipped != Never || l.lost != Never {
		return
	}
	until := l.asked + h.grant.TTL + h.grant.Delay - rounding
	if c, ok := s.closed[h.grant.Proc]; ok && c.Call < until {
		return // a Close that does not wait releases everything
	}
	for _, next := range s.byKey[l.grant.Key] {
		kind := l.grant.Kind
		if next.grant.Ret >= l.left {
			kind = "read"
		}
		if next != l && excludes(next.grant.Kind, kind) && next.grant.Ret > l.asked && next.grant.Ret < until && next.grant.Token > l.grant.Token {
			s.pair("K7", h.grant, next.grant, "granted %v before the delay of a lock that was lost is over", Between(next.grant.Ret, until))
		}
	}
}

// unheard checks K8 for w, a wait for a condition that ended with its context. Waits and
// signals happen under the lock, so they are in the order of its tokens.
func (s *scan) unheard(w Record, all, calls []Record) {
	if w.Outcome != Fail || w.CtxEnd == 0 || !s.quiet(w.Call, w.CtxEnd) {
		return
	}
	before := 0
	for _, v := range all {
		if v.Token < w.Token && v.Outcome != Fail && v.Outcome != Refused && v.Ret >= w.Call {
			before++
		}
	}
	for _, c := range calls {
		if c.Outcome != OK || c.Token <= w.Token || c.Ret > w.CtxEnd-hearing {
			continue
		}
		if before--; before < 0 || c.Op == Broadcast {
			s.pair("K8", c, w, "process %d waits for a condition and does not get a signal of it for %v", w.Proc, Between(c.Ret, w.CtxEnd))
			return
		}
	}
}
