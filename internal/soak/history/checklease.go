package history

import "fmt"

// deadline returns until when h could consider the lease its own, for an operation
// that ended at ret. known is false if the effect of a running renewal is not
// known.
func (h *hold) deadline(ret int64) (valid int64, known bool) {
	l := h.lease
	if l.unanswered <= ret || l.early && (len(l.renewsAsked) == 0 || l.renewsAsked[0].Ret > ret) {
		return 0, false
	}
	for _, c := range l.claims {
		if c.asked <= ret {
			valid = max(valid, c.valid)
		}
	}
	return valid - h.grant.Delay, true
}

// honest checks I5 and I6 for one hold: what its calls return after the end of its lease.
func (s *scan) honest(h *hold) {
	if h.lease == nil {
		return
	}
	for _, c := range h.checks {
		s.honestCheck(h, c)
	}
	r := h.release
	if r == nil || r.Ret == Never {
		return
	}
	valid, known := h.deadline(r.Ret)
	switch {
	case r.Outcome == OK && known && r.Call > valid+rounding:
		s.pair("I6", h.grant, *r, "released without an error, %v after the end of the lease", Between(valid, r.Call))
	case r.Outcome == Lost && known && r.Call <= valid && valid < r.Ret: // the lease ended during the release
	case r.Outcome == Lost && h.grant.Renews && s.quiet(h.grant.Call, r.Ret):
		s.pair("I5", h.grant, *r, "lost although nothing was wrong")
	}
}

func (s *scan) honestCheck(h *hold, c Record) {
	valid, known := h.deadline(c.Ret)
	if !known {
		return
	}
	if c.Outcome == OK && c.Call > valid {
		s.pair("I5", h.grant, c, "Check succeeds %v after the end of the lease", Between(valid, c.Call))
	}
	// After a pause a timer is late. Check covers this case.
	if c.Outcome == Lost && c.Live && c.Call > valid+s.told && !s.wasPaused(c.Proc, valid, c.Ret) {
		s.pair("I5", h.grant, c, "the context still lives %v after the end of the lease", Between(valid, c.Call))
	}
}

// kept checks I2 by the engine's own answers: it must not answer "not yours" for a lease
// that it had acknowledged for longer and that the process did not release.
func (s *scan) kept(l *lease) {
	for _, r := range l.renewsAsked {
		if r.Outcome == Lost && r.Ret < l.promised() {
			s.pair("I2", l.grant, r, "the engine took the lease away %v before its end", Between(r.Ret, l.promised()))
		}
	}
}

// unlimited checks that an acquire without a limit of its own does not fail while
// nothing is wrong.
func (s *scan) unlimited(r Record) {
	failed := r.Outcome == Refused || r.Outcome == Unknown
	if r.Op == Acquire && failed && r.Ret != Never && r.Wait == 0 && r.CtxEnd == 0 && s.quiet(r.Call, r.Ret) {
		s.report(Violation{Invariant: "I6", Key: r.Key, At: r.Ret, Records: []Record{r},
			Text: "an acquire failed although nothing was wrong: " + r.Note})
	}
}

// process checks the processes' records about themselves, and that calls end in time.
func (s *scan) process() {
	for _, r := range s.Records {
		s.unlimited(r)
		switch {
		case r.Op == Broken:
			s.report(Violation{Invariant: "API", Key: r.Key, At: r.Ret, Text: r.Note, Records: []Record{r}})
		case r.Op == Closed && r.Outcome == Fail:
			s.report(Violation{Invariant: "I8", At: r.Ret, Text: r.Note, Records: []Record{r}})
		case r.Op == Acquire && r.CtxEnd != 0 && r.Ret != Never:
			most := 100e6 + s.told
			if r.Ret > r.CtxEnd+most && !s.wasPaused(r.Proc, r.CtxEnd, r.Ret) {
				s.report(Violation{Invariant: "N8", Key: r.Key, At: r.Ret, Records: []Record{r},
					Text: fmt.Sprintf("acquire ended %v after its context", Between(r.CtxEnd, r.Ret))})
			}
		case r.Op == Release && r.Ret != Never:
			most := 1e9 + s.told
			if r.Ret > r.Call+most && !s.wasPaused(r.Proc, r.Call, r.Ret) {
				s.report(Violation{Invariant: "N8", Key: r.Key, At: r.Ret, Records: []Record{r},
					Text: fmt.Sprintf("release blocked its caller for %v", Between(r.Call, r.Ret))})
			}
		}
	}
}
