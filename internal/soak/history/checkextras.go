package history

import (
	"fmt"
	"time"
)

// hearing is how long a call of a condition may take to be heard while nothing is wrong: one
// that went to who gave up at that moment goes to the next half a second later.
const hearing = int64(600 * time.Millisecond)

// extras checks what callers ask for beside a kind of lock, for each key:
//
//	K6  no more calls of a process wait than the bound of one that comes to wait; one that
//	    is refused for it is so at once, has sent nothing, and as many may have waited
//	K7  a lock with a delay that was lost, or whose holder died, is granted to nobody
//	    before its ttl and the delay are over
//	K8  a call of a condition is not lost: who waits hears it, unless others before him
//	    have heard as many
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
		case Await: // takes the lock again in the end
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

// instant is how far apart two things must be to be sure of their order in a process.
func (s *scan) instant() int64 { return min(s.told, Busy) }

// refused checks K6 for r, which was refused because too many wait. all are the calls of its
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
		wrong = fmt.Sprintf("refused although %d other calls at most wait, of %d", others, r.Bound)
	case s.sent[holdKey{r.Proc, r.Hold, r.Key}]:
		wrong = "refused because too many wait, and the engine was asked"
	case r.Ret > r.Call+s.told && !s.wasPaused(r.Proc, r.Call, r.Ret):
		wrong = fmt.Sprintf("refused because too many wait after %v", Between(r.Call, r.Ret))
	default:
		return
	}
	s.report(Violation{Invariant: "K6", Key: r.Key, At: r.Ret, Records: []Record{r}, Text: wrong})
}

// admitted checks K6 for r, which waited. One of the others may be the one that competes at
// the engine, and counts only if that has said that the lock is held. Of permits and readers
// several may.
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
			h.release.Outcome != Lost: // else it is not known when the next began to compete
			most = r.Bound // held in this process: nobody competes
		}
	}
	if len(waited) >= most {
		s.pair("K6", waited[0], r, "waits although %d others do, and %d may", len(waited), r.Bound)
	}
}

// staysClosed reports whether l has a delay, and ended without a release.
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
		return // a Close that does not wait gives all back
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

// unheard checks K8 for w, a wait for a condition that ended with its context. Who waits and who
// calls do so under the lock, so the order of its tokens is theirs.
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
			s.pair("K8", c, w, "process %d waits for a condition and does not hear a call of it for %v", w.Proc, Between(c.Ret, w.CtxEnd))
			return
		}
	}
}
