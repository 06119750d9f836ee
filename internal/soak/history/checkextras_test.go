package history

import (
	"fmt"
	"testing"
)

// builder makes a history of the key k, record by record.
type builder struct {
	h   History
	seq uint64
}

func newBuilder() *builder {
	t := &builder{h: History{Keys: []string{"k"}, Told: ms}}
	for p := range 3 {
		t.put(p+1, Record{Op: Started, Lease: fmt.Sprint("p", p+1)}, 0, 0)
	}
	return t
}

// put adds r, from call to ret in ms. If ret is 0, r never ended.
func (t *builder) put(proc int, r Record, call, ret int64) {
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

// stay adds a hold with a lease of 400 ms that begins at from. It is released at to with the outcome end, or
// never if to is 0.
func (t *builder) stay(proc int, hold uint64, asked, from, to int64, said Record, end Outcome) {
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
	waits := func(t *builder) { t.put(1, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 20, 90) }
	for _, c := range []struct {
		name, wrong string
		tell        func(*builder)
	}{
		{"one waits", "", func(t *builder) { waits(t); t.put(1, refused, 40, 40) }},
		{"nobody waits", "K6", func(t *builder) { t.put(1, refused, 40, 40) }},
		{"one waits in another process", "K6", func(t *builder) {
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 20, 90)
			t.put(1, refused, 40, 40)
		}},
		{"refused late", "K6", func(t *builder) { waits(t); t.put(1, refused, 40, 60) }},
		{"the engine was asked", "K6", func(t *builder) {
			waits(t)
			t.put(1, refused, 40, 40)
			t.put(1, Record{Op: Grant, Hold: 9, Lease: "p1:9", Outcome: Fail}, 40, 40)
		}},
		{"two wait, bound 1", "K6", func(t *builder) { waits(t); t.put(1, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 40, 80) }},
		{"two wait, bound 2", "", func(t *builder) { waits(t); t.put(1, Record{Op: Acquire, Hold: 9, Bound: 2, Outcome: Fail}, 40, 80) }},
		{"the first competes, because the lock was lost", "", func(t *builder) {
			t.h.Faults = []Fault{{Kind: "force-unlock", Class: ForceFree, Key: "k", Begin: 1e12 + 120*ms, End: 1e12 + 120*ms}}
			t.stay(2, 2, 105, 106, 150, Record{}, Lost)
			t.put(2, Record{Op: Renew, Lease: "p2:2", Outcome: Lost}, 129, 130)
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 110, 190)
			t.put(2, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 140, 180)
		}},
		{"two wait while the lock is held, bound 1", "K6", func(t *builder) {
			t.stay(2, 2, 105, 106, 150, Record{}, OK)
			t.put(2, Record{Op: Acquire, Hold: 8, Outcome: Fail}, 110, 190)
			t.put(2, Record{Op: Acquire, Hold: 9, Bound: 1, Outcome: Fail}, 140, 180)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBuilder()
			h.stay(1, 1, 1, 2, 100, Record{}, OK)
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// TestWhoDiesInTheQueue checks that a process that dies in the engine's queue may be granted the lock until its
// session has expired. The session's time counts from the death, not from the last attempt.
func TestWhoDiesInTheQueue(t *testing.T) {
	for at, wrong := range map[int64]string{3500: "", 4400: "I6"} {
		h := newBuilder()
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
		tell        func(*builder)
	}{
		{"released", "", func(t *builder) { t.stay(1, 1, 1, 2, 50, delayed, OK); t.stay(2, 2, 10, 52, 60, Record{}, OK) }},
		{"lost", "", func(t *builder) { t.stay(1, 1, 1, 2, 420, delayed, Lost); t.stay(2, 2, 10, 703, 710, Record{}, OK) }},
		{"lost, then released", "K7", func(t *builder) {
			t.stay(1, 1, 1, 2, 420, delayed, Lost)
			t.put(1, Record{Op: Free, Lease: "p1:1"}, 420, 421)
			t.stay(2, 2, 10, 430, 440, Record{}, OK)
		}},
		{"lost after a downgrade, while others read", "", func(t *builder) {
			t.h.Keys = nil // it is not a mutex
			writer, reader := delayed, Record{Kind: "read"}
			writer.Kind = "write"
			t.stay(1, 1, 1, 2, 420, writer, Lost)
			t.put(1, Record{Op: Down, Lease: "p1:1"}, 300, 301)
			t.put(1, Record{Op: Leave, Hold: 1}, 300, 301)
			t.stay(2, 2, 10, 302, 310, reader, OK)
		}},
		{"its holder died", "", func(t *builder) { t.stay(1, 1, 1, 2, 0, delayed, OK); t.stay(2, 2, 10, 703, 710, Record{}, OK) }},
		{"its holder died, granted at the end of the ttl", "K7", func(t *builder) {
			t.stay(1, 1, 1, 2, 0, delayed, OK)
			t.stay(2, 2, 10, 410, 420, Record{}, OK)
		}},
		{"lost, with a late answer of its grant", "", func(t *builder) {
			early := Record{Op: Grant, Lease: "p1:1", Hold: 1, Token: 200, Tokens: 10, TTL: 700 * ms, Valid: 1e12 + 702*ms, Since: 1e12 + 2*ms}
			t.put(1, early, 20, 21)
			t.put(1, Record{Op: Acquire, Hold: 1, Token: 200, TTL: 400 * ms, Delay: 300 * ms}, 1, 21)
			t.put(1, Record{Op: Release, Hold: 1, Token: 200, Outcome: Lost}, 420, 421)
			t.stay(2, 2, 10, 703, 710, Record{}, OK)
		}},
		{"the context is live during the delay", "I5", func(t *builder) {
			t.stay(1, 1, 1, 2, 420, delayed, Lost)
			t.put(1, Record{Op: Check, Hold: 1, Live: true}, 450, 450)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBuilder()
			h.h.Faults = []Fault{{Kind: "kill-client", Class: Plain, Proc: 1, Begin: 1e12, End: 1e12 + 10*ms}}
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// wait adds a wait for the condition of k under the hold with this number, in process proc.
func (t *builder) wait(proc int, hold uint64, from, to int64, outcome Outcome) {
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
	signal := func(t *builder, op Op, hold uint64, at int64) {
		t.stay(3, hold, at-2, at-1, at+3, Record{}, OK)
		t.put(3, Record{Op: op, Hold: hold, Token: uint64(at-1) * 100}, at, at+1)
	}
	for _, c := range []struct {
		name, wrong string
		tell        func(*builder)
	}{
		{"no signal", "", func(t *builder) { t.wait(1, 1, 10, 1000, Fail) }},
		{"signalled", "", func(t *builder) { t.wait(1, 1, 10, 60, OK); signal(t, Signal, 3, 40) }},
		{"a signal is lost", "K8", func(t *builder) { t.wait(1, 5, 10, 1000, Fail); signal(t, Signal, 3, 40) }},
		{"a signal just before the end is lost", "", func(t *builder) { t.wait(1, 5, 10, 1000, Fail); signal(t, Signal, 3, 900) }},
		{"signalled before it waits", "", func(t *builder) { signal(t, Signal, 1, 5); t.wait(1, 3, 20, 1000, Fail) }},
		{"another waiter gets the signal", "", func(t *builder) {
			t.wait(1, 1, 10, 60, OK)
			t.wait(2, 9, 20, 1000, Fail)
			signal(t, Signal, 5, 40)
		}},
		{"a later waiter gets the signal", "K8", func(t *builder) {
			t.wait(1, 9, 10, 1000, Fail)
			t.wait(2, 5, 20, 60, OK)
			signal(t, Signal, 3, 40)
		}},
		{"one of two signals is lost", "K8", func(t *builder) {
			t.wait(1, 1, 10, 100, OK)
			t.wait(2, 11, 20, 1000, Fail)
			signal(t, Signal, 5, 40)
			signal(t, Signal, 7, 60)
		}},
		{"one waiter misses a broadcast", "K8", func(t *builder) {
			t.wait(1, 1, 10, 60, OK)
			t.wait(2, 9, 20, 1000, Fail)
			signal(t, Broadcast, 5, 40)
		}},
		{"it returns while another holds the lock", "I2", func(t *builder) {
			t.wait(1, 1, 10, 60, OK)
			t.stay(2, 3, 55, 63, 70, Record{}, OK)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBuilder()
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}

// TestLeaseEndsDuringItsRelease checks that a release that is answered after the end of the lease may report the loss.
func TestLeaseEndsDuringItsRelease(t *testing.T) {
	for answered, wrong := range map[int64]string{395: "I5", 420: ""} {
		h := newBuilder()
		h.stay(1, 1, 1, 2, 0, Record{Renews: true}, OK) // until 402
		h.put(1, Record{Op: Release, Hold: 1, Token: 200, Outcome: Lost}, 390, answered)
		t.Run(fmt.Sprint(answered), func(t *testing.T) { expect(t, &h.h, wrong) })
	}
}

// TestLeaseOfAReader checks that, of two read leases of a process, a hold has the one that it asked for.
func TestLeaseOfAReader(t *testing.T) {
	read := func(hold uint64) *lease {
		return &lease{grant: Record{Kind: "read", Token: 5, Hold: hold, Ret: 10}, freed: Never}
	}
	own, other, third, late := read(7), read(8), read(9), read(7)
	own.grant.Call = 9 // even if both were granted at the same instant
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
