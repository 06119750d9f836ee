package history

import (
	"fmt"
	"testing"
)

// told is a history of the key k, a record after the other.
type teller struct {
	h   History
	seq uint64
}

func newTeller() *teller {
	t := &teller{h: History{Keys: []string{"k"}, Told: ms}}
	for p := range 3 {
		t.put(p+1, Record{Op: Started, Lease: fmt.Sprint("p", p+1)}, 0, 0)
	}
	return t
}

// put adds r, between call and ret in ms. 0 as ret is that it never ended.
func (t *teller) put(proc int, r Record, call, ret int64) {
	t.seq++
	r.Proc, r.Seq, r.Call = proc, t.seq, 1e12+call*ms
	if r.Key == "" {
		r.Key = "k"
	}
	if ret != 0 || r.Op == Started {
		r.Ret = 1e12 + ret*ms
		if r.Outcome == "" {
			r.Outcome = OK
		}
	}
	t.h.Records = append(t.h.Records, r)
}

// stay is a hold of 400 ms at most from from on, with its lease. It is released at to with this outcome; 0 is
// never.
func (t *teller) stay(proc int, hold uint64, asked, from, to int64, said Record, end Outcome) {
	id, token := fmt.Sprintf("p%d:%d", proc, hold), uint64(from)*100
	grant := Record{Op: Grant, Lease: id, Hold: hold, Kind: said.Kind, Token: token, Tokens: 10, TTL: 400*ms + said.Delay, Valid: 1e12 + (from+400)*ms + said.Delay}
	t.put(proc, grant, from-1, from)
	said.Op, said.Hold, said.Token, said.TTL = Acquire, hold, token, 400*ms
	t.put(proc, said, asked, from)
	if to == 0 {
		return
	}
	t.put(proc, Record{Op: Release, Hold: hold, Token: token, Outcome: end}, to, to+1)
	if end == OK {
		t.put(proc, Record{Op: Free, Lease: id, Token: token}, to, to+1)
	}
}

func TestBounds(t *testing.T) {
	refused := Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: TooMany}
	waits := func(t *teller) { t.put(1, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 20, 90) }
	for _, c := range []struct {
		name, wrong string
		tell        func(*teller)
	}{
		{"one waits", "", func(t *teller) { waits(t); t.put(1, refused, 40, 40) }},
		{"nobody waits", "K6", func(t *teller) { t.put(1, refused, 40, 40) }},
		{"one waits in another process", "K6", func(t *teller) {
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 20, 90)
			t.put(1, refused, 40, 40)
		}},
		{"refused late", "K6", func(t *teller) { waits(t); t.put(1, refused, 40, 60) }},
		{"the engine was asked", "K6", func(t *teller) {
			waits(t)
			t.put(1, refused, 40, 40)
			t.put(1, Record{Op: Grant, Hold: 9, Lease: "p1:9", Outcome: Fail}, 40, 40)
		}},
		{"the second waits beside one", "K6", func(t *teller) { waits(t); t.put(1, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 40, 80) }},
		{"the second waits, of two", "", func(t *teller) { waits(t); t.put(1, Record{Op: Acquire, Hold: 9, Bound: 2, Outcome: Fail}, 40, 80) }},
		{"the first competes, because the lock was lost", "", func(t *teller) {
			t.h.Faults = []Fault{{Kind: "force-unlock", Class: ForceFree, Key: "k", Begin: 1e12 + 120*ms, End: 1e12 + 120*ms}}
			t.stay(2, 2, 105, 106, 150, Record{}, Lost)
			t.put(2, Record{Op: Renew, Lease: "p2:2", Outcome: Lost}, 129, 130)
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 110, 190)
			t.put(2, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 140, 180)
		}},
		{"the second waits beside one while the lock is held", "K6", func(t *teller) {
			t.stay(2, 2, 105, 106, 150, Record{}, OK)
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 110, 190)
			t.put(2, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 140, 180)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTeller()
			h.stay(1, 1, 1, 2, 100, Record{}, OK)
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// Who dies in the engine's queue may be granted the lock until its session is over, which
// counts from then, and not from its last attempt.
func TestWhoDiesInTheQueue(t *testing.T) {
	for at, wrong := range map[int64]string{3500: "", 4400: "I6"} {
		h := newTeller()
		h.put(1, Record{Op: Grant, Lease: "p1:9", Hold: 9, Queued: true, TTL: 400 * ms, Outcome: Fail}, 20, 21)
		h.put(1, Record{Op: Acquire, Hold: 9, TTL: 400 * ms, Outcome: Fail}, 10, 900)
		h.h.Faults = []Fault{{Kind: "kill-client", Class: Plain, Proc: 1, Begin: 1e12 + 900*ms, End: 1e12 + 900*ms}}
		h.h.Samples = []Sample{{Begin: 1e12 + at*ms, End: 1e12 + at*ms, Keys: []KeyState{
			{Name: "k", Type: "hash", PTTL: 10, Fields: map[string]string{"p1:9": "1"}}}}}
		expect(t, &h.h, wrong)
	}
}

func TestDelays(t *testing.T) {
	delayed := Record{Delay: 300 * ms}
	for _, c := range []struct {
		name, wrong string
		tell        func(*teller)
	}{
		{"released", "", func(t *teller) { t.stay(1, 1, 1, 2, 50, delayed, OK); t.stay(2, 2, 10, 52, 60, Record{}, OK) }},
		{"lost", "", func(t *teller) { t.stay(1, 1, 1, 2, 420, delayed, Lost); t.stay(2, 2, 10, 703, 710, Record{}, OK) }},
		{"lost, and given back", "K7", func(t *teller) {
			t.stay(1, 1, 1, 2, 420, delayed, Lost)
			t.put(1, Record{Op: Free, Lease: "p1:1"}, 420, 421)
			t.stay(2, 2, 10, 430, 440, Record{}, OK)
		}},
		{"lost by who had left the write side, and others read", "", func(t *teller) {
			t.h.Keys = nil // it is no mutex
			writer, reader := delayed, Record{Kind: "read"}
			writer.Kind = "write"
			t.stay(1, 1, 1, 2, 420, writer, Lost)
			t.put(1, Record{Op: Down, Lease: "p1:1"}, 300, 301)
			t.put(1, Record{Op: Leave, Hold: 1}, 300, 301)
			t.stay(2, 2, 10, 302, 310, reader, OK)
		}},
		{"its holder died", "", func(t *teller) { t.stay(1, 1, 1, 2, 0, delayed, OK); t.stay(2, 2, 10, 703, 710, Record{}, OK) }},
		{"its holder died, and another came at the end of the ttl", "K7", func(t *teller) {
			t.stay(1, 1, 1, 2, 0, delayed, OK)
			t.stay(2, 2, 10, 410, 420, Record{}, OK)
		}},
		{"lost, and its grant was heard of late", "", func(t *teller) {
			early := Record{Op: Grant, Lease: "p1:1", Hold: 1, Token: 200, Tokens: 10, TTL: 700 * ms, Valid: 1e12 + 702*ms, Since: 1e12 + 2*ms}
			t.put(1, early, 20, 21)
			t.put(1, Record{Op: Acquire, Hold: 1, Token: 200, TTL: 400 * ms, Delay: 300 * ms}, 1, 21)
			t.put(1, Record{Op: Release, Hold: 1, Token: 200, Outcome: Lost}, 420, 421)
			t.stay(2, 2, 10, 703, 710, Record{}, OK)
		}},
		{"held on in the delay", "I5", func(t *teller) {
			t.stay(1, 1, 1, 2, 420, delayed, Lost)
			t.put(1, Record{Op: Check, Hold: 1, Live: true}, 450, 450)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTeller()
			h.h.Faults = []Fault{{Kind: "kill-client", Class: Plain, Proc: 1, Begin: 1e12, End: 1e12 + 10*ms}}
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// wait is a wait for the condition of k under the hold of this number, in a process of its own.
func (t *teller) wait(proc int, hold uint64, from, to int64, outcome Outcome) {
	t.stay(proc, hold, from-3, from-2, 0, Record{}, OK)
	place := Record{Op: Grant, Key: ofCondition + "k", Kind: "condition", Lease: fmt.Sprintf("p%d:%d", proc, hold+100), Hold: hold + 1, Queued: true}
	waits := place
	waits.Outcome = Fail
	t.put(proc, waits, from, from+1)
	t.put(proc, Record{Op: Free, Lease: fmt.Sprintf("p%d:%d", proc, hold)}, from+1, from+2)
	wait := Record{Op: Await, Hold: hold, Next: hold + 1, Token: uint64(from-2) * 100, Outcome: outcome}
	if outcome == Fail {
		wait.CtxEnd = 1e12 + (to-2)*ms
	}
	t.put(proc, wait, from, to)
	t.stay(proc, hold+1, from, to, to+5, Record{Again: true}, OK)
}

func TestConditions(t *testing.T) {
	signal := func(t *teller, op Op, hold uint64, at int64) {
		t.stay(3, hold, at-2, at-1, at+3, Record{}, OK)
		t.put(3, Record{Op: op, Hold: hold, Token: uint64(at-1) * 100}, at, at+1)
	}
	for _, c := range []struct {
		name, wrong string
		tell        func(*teller)
	}{
		{"nobody calls", "", func(t *teller) { t.wait(1, 1, 10, 1000, Fail) }},
		{"called", "", func(t *teller) { t.wait(1, 1, 10, 60, OK); signal(t, Signal, 3, 40) }},
		{"called and not heard", "K8", func(t *teller) { t.wait(1, 5, 10, 1000, Fail); signal(t, Signal, 3, 40) }},
		{"called and not heard at the very end", "", func(t *teller) { t.wait(1, 5, 10, 1000, Fail); signal(t, Signal, 3, 900) }},
		{"called before it waits", "", func(t *teller) { signal(t, Signal, 1, 5); t.wait(1, 3, 20, 1000, Fail) }},
		{"another was called", "", func(t *teller) {
			t.wait(1, 1, 10, 60, OK)
			t.wait(2, 9, 20, 1000, Fail)
			signal(t, Signal, 5, 40)
		}},
		{"another that came later was called", "K8", func(t *teller) {
			t.wait(1, 9, 10, 1000, Fail)
			t.wait(2, 5, 20, 60, OK)
			signal(t, Signal, 3, 40)
		}},
		{"one of two calls is lost", "K8", func(t *teller) {
			t.wait(1, 1, 10, 100, OK)
			t.wait(2, 11, 20, 1000, Fail)
			signal(t, Signal, 5, 40)
			signal(t, Signal, 7, 60)
		}},
		{"all are called, and one does not hear", "K8", func(t *teller) {
			t.wait(1, 1, 10, 60, OK)
			t.wait(2, 9, 20, 1000, Fail)
			signal(t, Broadcast, 5, 40)
		}},
		{"it returns with the lock of another", "I2", func(t *teller) {
			t.wait(1, 1, 10, 60, OK)
			t.stay(2, 3, 55, 63, 70, Record{}, OK)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTeller()
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// A release that is answered after the end of the lease may find it over.
func TestLeaseEndsDuringItsRelease(t *testing.T) {
	for answered, wrong := range map[int64]string{395: "I5", 420: ""} {
		h := newTeller()
		h.stay(1, 1, 1, 2, 0, Record{Renews: true}, OK) // until 402
		h.put(1, Record{Op: Release, Hold: 1, Token: 200, Outcome: Lost}, 390, answered)
		t.Run(fmt.Sprint(answered), func(t *testing.T) { expect(t, &h.h, wrong) })
	}
}

// Of two leases by which a process reads, the one that a hold asked for is its own.
func TestLeaseOfAReader(t *testing.T) {
	read := func(hold uint64) *lease {
		return &lease{grant: Record{Kind: "read", Token: 5, Hold: hold, Ret: 10}, freed: Never}
	}
	own, other, third, late := read(7), read(8), read(9), read(7)
	own.grant.Call = 9 // also if both were granted at one instant
	h := &hold{grant: Record{Kind: "read", Token: 5, Hold: 7, Ret: 20}}
	for _, c := range []struct {
		of   []*lease
		want *lease
	}{
		{[]*lease{other}, other},
		{[]*lease{other, third}, nil},
		{[]*lease{other, third, read(10)}, nil},
		{[]*lease{other, own, third}, own},
		{[]*lease{other, third, own}, own},
		{[]*lease{late, own}, own},
		{[]*lease{own, late}, own},
	} {
		if got := h.shared(c.of); got != c.want {
			t.Errorf("of %d leases: %v", len(c.of), got)
		}
	}
}
