package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stay is a hold or a lease of a lock that is not a mutex. The lock was certainly held between from
// and to. It may have been held earlier and later.
type stay struct {
	grant    Record
	from, to int64
	kind     string
}

// excludes reports whether two stays of the kinds a and b on one key must not overlap.
func excludes(a, b string) bool {
	return a != "read" && a != "permits" && a != "condition" || a != b
}

// kinds checks the locks that are not mutexes, for each key:
//
//	K1  a writer, a fair lock and a run of a job exclude all others; the holders of permits
//	    together have no more of them than the smallest limit of any of them
//	K2  tokens rise; a reader's token is not below that of a writer before it
//	K3  a call with a place in the queue gets the lock before a call that came later
//	K4  no tick is run after it was completed, or reported as completed before
//	K5  a reader waits for at most one writer
func (s *scan) kinds() {
	holds, leases := map[string][]stay{}, map[string][]stay{}
	grants := map[string][]*lease{}
	for _, h := range s.held {
		if h.grant.Kind != "" {
			holds[h.grant.Key] = append(holds[h.grant.Key], s.staysOf(h)...)
		}
	}
	for _, l := range s.leases {
		if l.grant.Kind != "" {
			leases[l.grant.Key] = append(leases[l.grant.Key], l.stays()...)
			grants[l.grant.Key] = append(grants[l.grant.Key], l)
		}
	}
	for key, all := range holds {
		s.together(key, all)
		s.kindTokens(all)
		s.register(key)
	}
	for key, all := range leases {
		s.together(key, all)
	}
	for key, all := range grants {
		s.order(key, all)
		s.ticks(key, all)
	}
}

// staysOf returns when a caller certainly held the lock: from the return of the acquire until
// the last successful Check or a release without an error.
func (s *scan) staysOf(h *hold) []stay {
	end := int64(0)
	for _, c := range h.checks {
		if c.Outcome == OK {
			end = max(end, c.Call)
		}
	}
	if h.release != nil && h.release.Outcome == OK {
		end = max(end, h.release.Call)
	}
	for _, f := range s.Faults {
		if f.Class == DataLoss && h.grant.Call <= f.End {
			end = min(end, f.Begin)
		}
	}
	return split(h.grant, end, h.left)
}

// stays returns when the process certainly had the lease.
func (l *lease) stays() []stay { return split(l.grant, l.believed(), l.left) }

// split returns the stay that began with grant and ended at end. If a writer left the write
// side at left, there are two stays.
func split(grant Record, end, left int64) (both []stay) {
	if grant.Ret >= end {
		return nil
	}
	if left >= end {
		return []stay{{grant, grant.Ret, end, grant.Kind}}
	}
	if grant.Ret < left {
		both = append(both, stay{grant, grant.Ret, left, grant.Kind})
	}
	return append(both, stay{grant, max(left, grant.Ret), end, "read"})
}

// together checks K1 for one key.
func (s *scan) together(key string, all []stay) {
	slices.SortFunc(all, func(a, b stay) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.grant.Token, b.grant.Token), cmp.Compare(a.grant.Hold, b.grant.Hold))
	})
	var inside []stay
	for _, one := range all {
		inside = slices.DeleteFunc(inside, func(o stay) bool { return o.to <= one.from })
		taken, limit := one.grant.Weight, one.grant.Limit
		for _, other := range inside {
			if same(one.grant, other.grant) {
				continue
			}
			if excludes(one.kind, other.kind) {
				s.pair("K1", other.grant, one.grant, "%s of process %d and %s of process %d are inside together, for %v",
					one.kind, one.grant.Proc, other.kind, other.grant.Proc, Between(one.from, min(one.to, other.to)))
			}
			taken, limit = taken+other.grant.Weight, min(limit, other.grant.Limit)
		}
		if one.kind == "permits" && taken > limit {
			s.report(Violation{Invariant: "K1", Key: key, At: one.from, Records: []Record{one.grant},
				Text: fmt.Sprintf("%d of %d permits are taken", taken, limit)})
		}
		inside = append(inside, one)
	}
}

// same reports whether two stays belong to one hold or lease, before and after it left the
// write side.
func same(a, b Record) bool { return a.Proc == b.Proc && a.Hold == b.Hold && a.Lease == b.Lease }

// kindTokens checks K2 for the holds of one key.
func (s *scan) kindTokens(all []stay) {
	var holds []Record
	for _, one := range all {
		if one.kind == one.grant.Kind {
			holds = append(holds, one.grant)
		}
	}
	seen := map[uint64]Record{}
	byCall := slices.Clone(holds)
	slices.SortStableFunc(byCall, func(a, b Record) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(holds, func(a, b Record) int { return cmp.Compare(a.Ret, b.Ret) })
	var last Record // of the holds before: the one with the highest token
	next := 0
	for _, h := range byCall {
		for ; next < len(holds) && holds[next].Ret < h.Call; next++ {
			if holds[next].Token >= last.Token {
				last = holds[next]
			}
		}
		reads := h.Kind == "read"
		// A lease with permits may be handed on after another has begun.
		if h.Kind != "permits" && (h.Token < last.Token || h.Token == last.Token && !reads) {
			s.pair("K2", last, h, "%s has token %d, after %s with %d", h.Kind, h.Token, last.Kind, last.Token)
		}
		if before, ok := seen[h.Token]; ok && !reads {
			s.pair("K2", before, h, "two holds have token %d", h.Token)
		}
		if !reads {
			seen[h.Token] = h
		}
	}
}

// order checks K3, and K5 for readers, for the leases of one key.
func (s *scan) order(key string, all []*lease) {
	slices.SortFunc(all, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.grant.Token, b.grant.Token), cmp.Compare(a.grant.Ret, b.grant.Ret))
	})
	var late *lease // of the leases with a lower token, the one that was asked for last
	asked := func(l *lease) int64 { return s.tries[leaseKey{l.grant.Proc, l.grant.Lease}].first }
	for _, l := range all {
		t := s.tries[leaseKey{l.grant.Proc, l.grant.Lease}]
		placed := t.placed != 0 && s.quiet(t.first, l.grant.Ret)
		switch {
		case placed && l.grant.Kind == "read":
			s.oneWriter(l, t.placed, all)
		case placed && l.grant.Kind != "write" && late != nil && asked(late) > t.placed:
			s.pair("K3", late.grant, l.grant, "%s came in before %s, and had asked %v after that had its place in the queue",
				late.grant.Lease, l.grant.Lease, Between(t.placed, asked(late)))
		}
		if late == nil || asked(l) > asked(late) {
			late = l
		}
	}
}

// oneWriter checks K5 for the lease of readers that had a place in the queue at placed.
func (s *scan) oneWriter(reader *lease, placed int64, all []*lease) {
	var writers []*lease
	for _, l := range all {
		if l.grant.Kind == "write" && l.grant.Ret > placed && l.grant.Ret < reader.grant.Ret && l.grant.Token <= reader.grant.Token {
			writers = append(writers, l)
		}
	}
	if len(writers) > 1 {
		s.pair("K5", writers[1].grant, reader.grant, "%d writers came in before a reader that waited", len(writers))
	}
}

// ticks checks K4 for one key.
func (s *scan) ticks(key string, all []*lease) {
	type life struct{ asked, done Record }
	ticks := map[string]*life{}
	for _, r := range s.Records {
		if r.Op != Free || !r.Completes || r.Key != key {
			continue
		}
		t := ticks[r.Tick]
		if t == nil {
			t = &life{asked: r}
			ticks[r.Tick] = t
		}
		if r.Outcome == OK && r.Ret != Never && (t.done.Ret == 0 || r.Ret < t.done.Ret) {
			t.done = r
		}
	}
	for _, l := range all {
		t := ticks[l.grant.Tick]
		if t != nil && t.done.Ret != 0 && l.grant.Call > t.done.Ret && !s.struck(DataLoss, t.done.Call, l.grant.Ret) {
			s.pair("K4", t.done, l.grant, "tick %s is run again %v after it was completed", l.grant.Tick, Between(t.done.Ret, l.grant.Call))
		}
	}
	for _, r := range s.Records {
		if r.Op != Acquire || r.Outcome != Done || r.Key != key {
			continue
		}
		if t := ticks[r.Tick]; t == nil || t.asked.Call > r.Ret {
			s.report(Violation{Invariant: "K4", Key: key, At: r.Ret, Records: []Record{r},
				Text: fmt.Sprintf("tick %s is reported as completed, but no release had asked for that", r.Tick)})
		}
	}
}

// party is a holder or waiter in the record of a lock.
type party struct {
	ID     string
	Kind   string
	Weight int
	Limit  int
	Until  int64 // the end of its lease by the server's clock, in µs
}

// recorded is the record that the engine keeps at the key of a lock that is not a mutex.
type recorded struct{ In, Queue []party }

func (k *KeyState) recorded() (r recorded, err error) {
	_, text, _ := strings.Cut(k.Value, " ")
	if text == "" {
		return r, fmt.Errorf("%s is a %s, %q", k.Name, k.Type, k.Value)
	}
	return r, json.Unmarshal([]byte(text), &r)
}

// Inside describes the holders and waiters at the key of a lock that is not a mutex. It returns "" if there are none.
func (k *KeyState) Inside() string {
	r, err := k.recorded()
	switch {
	case err != nil:
		return err.Error()
	case len(r.In)+len(r.Queue) > 0 && !k.isOver(r):
		return fmt.Sprintf("%v inside, %v waiting", r.In, r.Queue)
	}
	return ""
}

// isOver reports whether k belongs to a condition and all entries of r have expired. No process reads such a record again.
func (k *KeyState) isOver(r recorded) bool {
	lives := func(p party) bool { return p.Until > k.Now }
	return strings.HasPrefix(k.Name, ofCondition) && !slices.ContainsFunc(slices.Concat(r.In, r.Queue), lives)
}

// record checks the sample of one lock that is not a mutex, for I6, I8 and K1.
func (s *scan) record(at *Sample, k *KeyState) {
	r, err := k.recorded()
	if err != nil {
		s.sampled("I9", at, k, "there is no record: %v", err)
		return
	}
	taken, limit := 0, 0
	for i, p := range r.In {
		for _, other := range r.In[:i] {
			if excludes(p.Kind, other.Kind) {
				s.sampled("K1", at, k, "%s and %s are inside together", p.Kind, other.Kind)
			}
		}
		if taken += p.Weight; i == 0 || p.Limit < limit {
			limit = p.Limit
		}
	}
	if len(r.In) > 0 && r.In[0].Kind == "permits" && taken > limit {
		s.sampled("K1", at, k, "%d of %d permits are taken", taken, limit)
	}
	for _, p := range slices.Concat(r.In, r.Queue) {
		proc, known := s.owner(p.ID)
		t := s.tries[leaseKey{proc, p.ID}]
		if !known || t == nil {
			s.sampled("I6", at, k, "%s is there, but no process asked for it", p.ID)
			continue
		}
		// An expired entry stays until a process reads the record.
		if p.Until <= k.Now || s.struck(DataLoss, t.first, at.End) || s.struck(ClockBack, t.first, at.End) {
			continue
		}
		if at.Begin > t.freedAt {
			s.sampled("I6", at, k, "%s is there %v after its release was answered", p.ID, Between(t.freedAt, at.Begin))
		}
		if c, ok := s.closed[proc]; ok && at.Begin > c.Ret+int64(time.Millisecond) && !s.mayStay(leaseKey{proc, p.ID}) {
			s.sampled("I8", at, k, "%s is there %v after its Locker was closed", p.ID, Between(c.Ret, at.Begin))
		}
	}
}
