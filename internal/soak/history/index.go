package history

import (
	"cmp"
	"slices"
	"strings"
)

// lease is one grant of the engine, with all operations of its process on it.
type lease struct {
	grant Record
	// freed is when a release or an undo was first sent; Never if none was.
	freed int64
	// acknowledged is the latest instant until which the engine must keep it: the call
	// of an acknowledged acquire or renewal, plus the ttl.
	acknowledged int64
	claims       []claim
	unanswered   int64 // call of the first renewal whose result is not known, or Never
	lost         int64 // when a renewal was answered "not yours", or Never
	clipped      int64 // when a fault ended the promises about it, or Never
	unused       bool  // it came too late and was returned with all its tokens
	left         int64 // when its write side was first asked to end, or Never
	asked        int64 // call of the last acquire or renewal that was acknowledged
	last         *hold // with the highest token
	renewsAsked  []Record
	// early says that the engine granted it before the call that returned it, with a
	// provisional lease. The backend renews that lease by itself, without a record.
	early bool
}

// claim says that from at on the process believed that the lease lasts until valid.
type claim struct{ asked, at, valid int64 }

// hold is one hold of a caller: the lease, or its turn with it.
type hold struct {
	grant   Record
	lease   *lease // nil if no lease has its token
	release *Record
	checks  []Record
	left    int64 // when it left the write side, or Never
}

type leaseKey struct {
	proc int
	id   string
}

type holdKey struct {
	proc int
	num  uint64
	key  string
}

// index is a history in the form that the scan needs.
type index struct {
	*History
	byKey  map[string][]*lease // sorted by token
	leases map[leaseKey]*lease
	holds  map[string][]*hold // sorted by token
	held   map[holdKey]*hold

	tries  map[leaseKey]*try  // all acquisitions, granted or not
	owners map[string]int     // process, by the Locker's part of an id
	closed map[int]Record     // processes whose Locker closed without an error
	paused map[int][][2]int64 // when a process was stopped or late
	killed map[int]int64      // when a process was killed

	sent     map[holdKey]bool  // holds for which the engine was asked
	mustWait map[holdKey]int64 // when the engine answered that they must wait
	inLine   map[holdKey]*try  // their acquisitions in the engine's queue
}

// try is one acquisition with all its attempts.
type try struct {
	key     string
	first   int64 // call of the first attempt
	last    int64 // end of the last attempt, or the undo, until which it waits; Never if it is not known
	granted bool
	placed  int64 // when the engine answered that it waits in the queue; 0 if it did not
	freedAt int64 // when a release or an undo of it was answered, or Never
	ttl     int64
	renewed int64 // the longest ttl of a renewal
}

func newIndex(h *History) *index {
	x := &index{
		History: h,
		byKey:   map[string][]*lease{}, leases: map[leaseKey]*lease{},
		holds: map[string][]*hold{}, held: map[holdKey]*hold{},
		tries: map[leaseKey]*try{}, owners: map[string]int{}, closed: map[int]Record{},
		paused: map[int][][2]int64{}, killed: map[int]int64{},
		sent: map[holdKey]bool{}, mustWait: map[holdKey]int64{}, inLine: map[holdKey]*try{},
	}
	for _, f := range h.Faults {
		switch f.Kind {
		case "pause-client", "stall-clients":
			x.paused[f.Proc] = append(x.paused[f.Proc], [2]int64{f.Begin, f.End})
		case "kill-client":
			x.killed[f.Proc] = f.Begin
		}
	}
	x.Records = merged(h.Records)
	for _, r := range x.Records {
		if r.Op == Late {
			x.paused[r.Proc] = append(x.paused[r.Proc], [2]int64{r.Call, r.Ret})
		}
		x.addGrant(r)
	}
	for _, r := range x.Records {
		x.add(r)
	}
	x.clip()
	x.sort()
	x.join()
	return x
}

// merged replaces the records of beginnings by those of their ends. It sets the end of
// operations that did not end, and sorts by call.
func merged(records []Record) []Record {
	type id struct {
		proc int
		seq  uint64
	}
	at := map[id]int{}
	var out []Record
	for _, r := range records {
		k := id{r.Proc, r.Seq}
		if i, ok := at[k]; ok {
			if r.Ret != 0 {
				out[i] = r
			}
			continue
		}
		at[k] = len(out)
		out = append(out, r)
	}
	for i := range out {
		if out[i].Ret == 0 {
			out[i].Ret, out[i].Outcome = Never, Unknown
		}
	}
	slices.SortStableFunc(out, func(a, b Record) int { return cmp.Compare(a.Call, b.Call) })
	return out
}

func (x *index) addGrant(r Record) {
	k := leaseKey{r.Proc, r.Lease}
	switch r.Op {
	case Started:
		x.owners[r.Lease] = r.Proc
	case Grant:
		t := x.tries[k]
		if t == nil {
			t = &try{key: r.Key, first: r.Call, freedAt: Never, ttl: r.TTL}
			x.tries[k] = t
		}
		t.last = max(t.last, r.Ret)
		x.sent[holdKey{r.Proc, r.Hold, r.Key}] = true
		if r.Outcome == Fail && r.Queued && r.Ret != Never && t.placed == 0 {
			t.placed = r.Ret
			x.mustWait[holdKey{r.Proc, r.Hold, r.Key}] = r.Ret
			x.inLine[holdKey{r.Proc, r.Hold, r.Key}] = t
		}
		if r.Outcome != OK {
			return
		}
		t.granted = true
		l := &lease{
			grant: r, freed: Never, unanswered: Never, lost: Never, clipped: Never, left: Never,
			acknowledged: min(r.Call+r.TTL, r.Valid), asked: r.Call, // a waiter in the queue is first granted a provisional lease
			claims: []claim{{r.Call, r.Ret, r.Valid}},
		}
		if r.Since != 0 {
			l.grant.Call, l.acknowledged, l.early = r.Since, r.Valid, true
			l.asked = min(l.asked, r.Valid-r.TTL) // the grant was before the call
		}
		x.leases[k] = l
	case Acquire:
		if r.Outcome == OK {
			x.held[holdKey{r.Proc, r.Hold, r.Key}] = &hold{grant: r, left: Never}
		}
	}
}

func (x *index) add(r Record) {
	switch r.Op {
	case Renew:
		x.addRenewal(r)
	case Free, Undo:
		x.addFree(r)
	case Acquire:
		if t := x.inLine[holdKey{r.Proc, r.Hold, r.Key}]; t != nil { // it waits until then, even if its process dies before the undo
			t.last = max(t.last, r.Ret)
		}
	case Release:
		// If a Wait did not acquire the lock again, the Wait has released it.
		if h := x.held[holdKey{r.Proc, r.Hold, r.Key}]; h != nil && h.release == nil {
			h.release = &r
		}
	case Await:
		h := x.held[holdKey{r.Proc, r.Hold, r.Key}]
		if h == nil || r.Outcome == Refused {
			return
		}
		if r.Outcome == Fail || r.Ret != Never && r.Outcome == Unknown { // it got no signal, but has the lock again
			r.Outcome = OK
		}
		h.release = &r
	case Shut:
		for k, l := range x.leases {
			if k.proc == r.Proc && l.grant.Ret >= r.Call { // no hold can begin under it
				l.freed = min(l.freed, r.Call)
			}
		}
	case Down:
		if l := x.leases[leaseKey{r.Proc, r.Lease}]; l != nil {
			l.left = min(l.left, r.Call)
		}
	case Leave:
		if h := x.held[holdKey{r.Proc, r.Hold, r.Key}]; h != nil {
			h.left = min(h.left, r.Call)
		}
	case Check:
		if h := x.held[holdKey{r.Proc, r.Hold, r.Key}]; h != nil {
			h.checks = append(h.checks, r)
		}
	case Closed:
		if r.Outcome == OK {
			x.closed[r.Proc] = r
		}
	}
}

// clip ends the promises about leases that a fault may have affected, at the
// moment at which the fault began.
func (x *index) clip() {
	for _, f := range x.Faults {
		if f.Class == Plain || f.Class == ClockBack {
			continue
		}
		for _, l := range x.leases {
			if l.grant.Call <= f.End && (f.Class == DataLoss || f.Key == l.grant.Key) {
				l.clipped = min(l.clipped, f.Begin)
			}
		}
	}
}

func (x *index) sort() {
	for _, l := range x.leases {
		x.byKey[l.grant.Key] = append(x.byKey[l.grant.Key], l)
	}
	for _, h := range x.held {
		x.holds[h.grant.Key] = append(x.holds[h.grant.Key], h)
	}
	for _, ls := range x.byKey {
		slices.SortFunc(ls, func(a, b *lease) int {
			// The time of an early grant is an estimate, which may be before the call of the unused lease
			// whose tokens it has.
			return cmp.Or(cmp.Compare(a.grant.Token, b.grant.Token), unusedFirst(a, b), cmp.Compare(a.grant.Call, b.grant.Call))
		})
	}
	for _, hs := range x.holds {
		slices.SortFunc(hs, func(a, b *hold) int {
			return cmp.Or(cmp.Compare(a.grant.Token, b.grant.Token), cmp.Compare(a.grant.Call, b.grant.Call))
		})
	}
}

// unusedFirst orders a lease that was returned with all its tokens before one that was not.
func unusedFirst(a, b *lease) int {
	switch {
	case a.unused == b.unused:
		return 0
	case a.unused:
		return -1
	}
	return 1
}

// join finds the lease of each hold: the lease of its process whose block of tokens has the
// hold's token. Blocks may overlap, since only a part of a block is used. The lease is the
// last one whose block does not begin after the token.
func (x *index) join() {
	for key, hs := range x.holds {
		byProc := map[int][]*lease{}
		for _, l := range x.byKey[key] {
			byProc[l.grant.Proc] = append(byProc[l.grant.Proc], l)
		}
		for _, h := range hs { // sorted by token
			if h.lease = h.of(byProc[h.grant.Proc]); h.lease != nil {
				h.lease.last = h
			}
		}
	}
}

// of returns the lease of h among those of its process, or nil.
func (h *hold) of(leases []*lease) *lease {
	if h.grant.Kind == "read" {
		return h.shared(leases)
	}
	for _, l := range slices.Backward(leases) {
		if l.grant.Kind != "read" && l.grant.Token <= h.grant.Token {
			if h.grant.Token < l.grant.Token+l.grant.Tokens {
				return l
			}
			break
		}
	}
	return nil
}

// shared returns the lease that h shares with other readers: the one that h asked for itself, or
// else the only possible one. If h has asked for several, all but the last came too late.
func (h *hold) shared(of []*lease) *lease {
	var own, other *lease
	several := false
	for _, l := range of {
		switch {
		case l.grant.Kind != "read" || l.grant.Token != h.grant.Token || l.grant.Ret > h.grant.Ret || l.freed < h.grant.Ret:
		case l.grant.Hold != h.grant.Hold:
			several, other = several || other != nil, l
		case own == nil || l.grant.Call > own.grant.Call:
			own = l
		}
	}
	switch {
	case own != nil:
		return own
	case several:
		return nil
	}
	return other
}

// owner returns the process of an acquisition's id, "<uuid>:<n>".
func (x *index) owner(id string) (int, bool) {
	name, _, _ := strings.Cut(id, ":")
	p, ok := x.owners[name]
	return p, ok
}

// quiet reports whether in [from, to] and for a second before there was no fault, and no process and
// no server was late. A failure in that time is a violation.
func (x *index) quiet(from, to int64) bool {
	const aftermath = int64(1e9)
	for proc := range x.paused {
		if x.wasPaused(proc, from-aftermath, to) {
			return false
		}
	}
	for _, s := range x.Samples {
		if s.End-s.Begin > Busy && s.Begin <= to && s.End+aftermath >= from {
			return false // the server was late
		}
	}
	for _, f := range x.Faults {
		if f.Begin <= to && f.End+aftermath >= from {
			return false
		}
	}
	return true
}

// wasPaused reports whether proc was stopped or late at some moment of [from, to]. A fault
// of process 0 stops all processes.
func (x *index) wasPaused(proc int, from, to int64) bool {
	for _, p := range slices.Concat(x.paused[proc], x.paused[0]) {
		if p[0] <= to && p[1] >= from {
			return true
		}
	}
	return false
}

// struck reports whether a fault of this class was in force at some moment of [from, to].
func (x *index) struck(class Class, from, to int64) bool {
	for _, f := range x.Faults {
		if f.Class == class && f.Begin <= to && f.End >= from {
			return true
		}
	}
	return false
}
