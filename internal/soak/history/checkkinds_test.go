package history

import (
	"fmt"
	"slices"
	"testing"
)

// one is a stay under a lock that is not a mutex, with times in ms.
type one struct {
	kind          string
	asked, placed int64 // placed is when the engine answered that it must wait; 0 if it did not wait
	from, to      int64
	token         uint64
	weight, limit int
	tick          string
	completes     bool
	leaves        int64 // when it leaves the write side; 0 if it does not
}

// tell makes the history of some stays, each in a separate process.
func tell(all ...one) *History {
	at := func(n int64) int64 { return 1e12 + n*ms }
	h := &History{Keys: []string{"k"}}
	for i, o := range all {
		proc, id, seq := i+1, fmt.Sprintf("p%d:1", i+1), uint64(0)
		put := func(r Record) {
			seq++
			r.Proc, r.Seq, r.Key = proc, seq, "k:kind:any"
			if r.Outcome == "" {
				r.Outcome = OK
			}
			h.Records = append(h.Records, r)
		}
		put(Record{Op: Started, Lease: fmt.Sprint("p", proc), Call: at(0), Ret: at(0)})
		said := Record{Kind: o.kind, Weight: o.weight, Limit: o.limit, Tick: o.tick, TTL: 1000 * ms}
		try, hold := said, said
		try.Op, try.Lease, try.Queued, try.Tokens = Grant, id, true, 1
		if o.placed != 0 {
			waits := try
			waits.Call, waits.Ret, waits.Outcome = at(o.asked), at(o.placed), Fail
			put(waits)
		}
		hold.Op, hold.Hold, hold.Token, hold.Call, hold.Ret = Acquire, 1, o.token, at(o.asked), at(o.from)
		if o.to == 0 { // the answer was that the tick is done
			hold.Outcome, hold.Ret = Done, at(o.asked+1)
			put(hold)
			continue
		}
		try.Call, try.Ret, try.Token, try.Valid = at(o.from-1), at(o.from), o.token, at(o.from+999)
		put(try)
		put(hold)
		if o.leaves != 0 {
			put(Record{Op: Leave, Hold: 1, Call: at(o.leaves), Ret: at(o.leaves + 1)})
			put(Record{Op: Down, Lease: id, Call: at(o.leaves), Ret: at(o.leaves + 1)})
		}
		put(Record{Op: Release, Hold: 1, Token: o.token, Completes: o.completes, Call: at(o.to), Ret: at(o.to + 1)})
		put(Record{Op: Free, Lease: id, Token: o.token, Tick: o.tick, Completes: o.completes, Call: at(o.to), Ret: at(o.to + 1)})
	}
	return h
}

func TestLocksThatAreNoMutexes(t *testing.T) {
	permits := func(from, to int64, token uint64, weight, limit int) one {
		return one{kind: "permits", asked: from - 1, from: from, to: to, token: token, weight: weight, limit: limit}
	}
	for _, c := range []struct {
		name  string
		wrong string // the invariant that is violated, or ""
		all   []one
	}{
		{"readers share", "", []one{{kind: "read", asked: 1, from: 2, to: 50, token: 5}, {kind: "read", asked: 3, from: 4, to: 60, token: 5}, {kind: "write", asked: 5, placed: 7, from: 62, to: 70, token: 6}}},
		{"a writer together with a reader", "K1", []one{{kind: "read", asked: 1, from: 2, to: 50, token: 5}, {kind: "write", asked: 3, from: 40, to: 60, token: 6}}},
		{"a reader together with a writer", "K1", []one{{kind: "write", asked: 1, from: 2, to: 50, token: 5}, {kind: "read", asked: 3, from: 40, to: 60, token: 5}}},
		{"a writer that has downgraded", "", []one{{kind: "write", asked: 1, from: 2, to: 50, token: 5, leaves: 20}, {kind: "read", asked: 3, from: 40, to: 60, token: 5}}},
		{"a writer together with one that has downgraded", "K1", []one{{kind: "write", asked: 1, from: 2, to: 50, token: 5, leaves: 20}, {kind: "write", asked: 3, from: 40, to: 60, token: 6}}},
		{"two holders of a fair lock", "K1", []one{{kind: "fair", asked: 1, from: 2, to: 50, token: 5}, {kind: "fair", asked: 3, from: 49, to: 60, token: 6}}},
		{"permits", "", []one{permits(2, 50, 5, 2, 3), permits(4, 50, 6, 1, 3), permits(52, 60, 7, 3, 3)}},
		{"one permit too many", "K1", []one{permits(2, 50, 5, 2, 3), permits(4, 50, 6, 1, 3), permits(40, 60, 7, 1, 3)}},
		{"more permits than the smallest limit", "K1", []one{permits(2, 50, 5, 2, 2), permits(40, 60, 6, 1, 3)}},
		{"a token that falls", "K2", []one{{kind: "fair", asked: 1, from: 2, to: 50, token: 5}, {kind: "fair", asked: 53, from: 54, to: 60, token: 4}}},
		{"one token for two holds", "K2", []one{permits(2, 50, 5, 1, 3), permits(4, 50, 5, 1, 3)}},
		{"a reader's old token", "K2", []one{{kind: "write", asked: 1, from: 2, to: 50, token: 5}, {kind: "read", asked: 53, from: 54, to: 60, token: 4}}},
		{"in order", "", []one{{kind: "fair", asked: 1, from: 2, to: 20, token: 5}, {kind: "fair", asked: 3, placed: 4, from: 22, to: 30, token: 6}, {kind: "fair", asked: 5, placed: 6, from: 32, to: 40, token: 7}}},
		{"out of order", "K3", []one{{kind: "fair", asked: 1, from: 2, to: 20, token: 5}, {kind: "fair", asked: 3, placed: 4, from: 32, to: 40, token: 7}, {kind: "fair", asked: 5, placed: 6, from: 22, to: 30, token: 6}}},
		{"a tick that failed", "", []one{{kind: "once", asked: 1, from: 2, to: 20, token: 5, tick: "1"}, {kind: "once", asked: 30, from: 32, to: 40, token: 6, tick: "1", completes: true}, {kind: "once", asked: 50, tick: "1"}}},
		{"a tick run again", "K4", []one{{kind: "once", asked: 1, from: 2, to: 20, token: 5, tick: "1", completes: true}, {kind: "once", asked: 30, from: 32, to: 40, token: 6, tick: "1"}}},
		{"a tick that nobody completed", "K4", []one{{kind: "once", asked: 1, from: 2, to: 20, token: 5, tick: "1"}, {kind: "once", asked: 30, tick: "1"}}},
		{"one writer before a reader", "", []one{{kind: "read", asked: 1, from: 2, to: 20, token: 5}, {kind: "write", asked: 3, placed: 4, from: 22, to: 30, token: 6}, {kind: "read", asked: 5, placed: 6, from: 32, to: 40, token: 6}}},
		{"two writers before a reader", "K5", []one{{kind: "read", asked: 1, from: 2, to: 20, token: 5}, {kind: "write", asked: 3, placed: 4, from: 22, to: 30, token: 6}, {kind: "write", asked: 3, placed: 4, from: 32, to: 36, token: 7}, {kind: "read", asked: 5, placed: 6, from: 40, to: 50, token: 7}}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, tell(c.all...), c.wrong) })
	}
}

// TestTokenAfterDataLoss checks that tokens must rise even over a loss of all data, since no token is ahead of the server's clock.
func TestTokenAfterDataLoss(t *testing.T) {
	for _, kind := range []string{"read", "write"} {
		h := tell(one{kind: kind, asked: 1, from: 2, to: 50, token: 5}, one{kind: "write", asked: 53, from: 54, to: 60, token: 4})
		h.Faults = []Fault{{Kind: "flush-all", Class: DataLoss, Begin: 1e12 + 51*ms, End: 1e12 + 52*ms}}
		t.Run(kind, func(t *testing.T) { expect(t, h, "K2") })
	}
}

func expect(t *testing.T, h *History, wrong string) {
	t.Helper()
	found := Verify(h)
	named := func(v Violation) bool { return v.Invariant == wrong }
	if wrong == "" && len(found) > 0 || wrong != "" && !slices.ContainsFunc(found, named) {
		t.Errorf("found %v, not %q", found, wrong)
	}
}

func TestRecordsAtTheServer(t *testing.T) {
	const inside = `{"id":"p1:1","kind":"fair","until":90}`
	for _, c := range []struct{ name, wrong, value string }{
		{"while it is held", "", `v {"in":[` + inside + `]}`},
		{"that has expired", "", `v {"in":[{"id":"p1:1","kind":"fair","until":40}]}`},
		{"of no process", "I6", `v {"in":[{"id":"p9:1","kind":"fair","until":90}]}`},
		{"with two inside", "K1", `v {"in":[` + inside + `,{"id":"p2:1","kind":"fair","until":90}]}`},
		{"with too many permits", "K1", `v {"in":[{"id":"p1:1","kind":"permits","weight":2,"limit":3,"until":90},{"id":"p2:1","kind":"permits","weight":1,"limit":2,"until":90}]}`},
		{"that is not a record", "I9", `17`},
	} {
		for _, late := range []bool{false, true} {
			h := tell(one{kind: "fair", asked: 1, from: 2, to: 50, token: 5})
			at := int64(1e12) + 30*ms
			if late {
				at += 100 * ms
			}
			h.Samples = []Sample{{Begin: at, End: at, Keys: []KeyState{{Name: "k:kind:any", Type: "string", PTTL: 900, Value: c.value, Now: 60}}}}
			wrong := c.wrong
			if late && c.name == "while it is held" {
				wrong = "I6"
			}
			t.Run(fmt.Sprint(c.name, " ", late), func(t *testing.T) { expect(t, h, wrong) })
		}
	}
}
