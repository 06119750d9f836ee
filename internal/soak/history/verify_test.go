package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// story makes a history of one key: leases of several processes, one after the
// other, some handed on, some renewed, some that expire.
type story struct {
	h    History
	rng  *rand.Rand
	now  int64
	seq  uint64
	hold uint64
	tok  uint64
	ttl  int64

	leases []written
}

// written has the positions of a lease's records.
type written struct {
	grant, hold, release, free int // indexes; -1 if there is none
	id                         string
}

func legal(seed uint64, grants int) *story {
	s := &story{rng: rand.New(rand.NewPCG(seed, 1)), now: 1e12, tok: 1e6, ttl: 400 * ms}
	s.h.Keys = []string{"k"}
	for p := range 3 {
		s.put(Record{Proc: p + 1, Op: Started, Lease: fmt.Sprint("p", p+1), Call: s.now, Ret: s.now, Outcome: OK})
	}
	for range grants {
		s.lease(1 + s.rng.IntN(3))
	}
	for p := range 3 {
		s.put(Record{Proc: p + 1, Op: Closed, Call: s.now, Ret: s.now, Outcome: OK})
	}
	return s
}

func (s *story) put(r Record) int {
	if r.Seq == 0 {
		s.seq++
		r.Seq = s.seq
	}
	s.h.Records = append(s.h.Records, r)
	return len(s.h.Records) - 1
}

func (s *story) tick(most int64) int64 {
	s.now += 1 + s.rng.Int64N(most)
	return s.now
}

// lease adds one grant with its holds and its end.
func (s *story) lease(proc int) {
	id := fmt.Sprintf("p%d:%d", proc, s.seq+1)
	asked := s.now - s.rng.Int64N(50*ms) // while others held it
	call := s.tick(ms)
	sent := s.tick(ms / 2)
	ret := s.tick(ms)
	s.tok += 1 + s.rng.Uint64N(1000)
	valid := sent + s.ttl
	w := written{id: id, release: -1, free: -1}
	w.grant = s.put(Record{Proc: proc, Op: Grant, Key: "k", Lease: id, Call: call, Ret: ret, Outcome: OK,
		Token: s.tok, Tokens: 50, TTL: s.ttl, Valid: valid})
	for turn := range 1 + s.rng.IntN(3) {
		s.hold++
		call := asked
		if turn > 0 {
			s.tok++
		}
		w.hold = s.put(Record{Proc: proc, Op: Acquire, Key: "k", Hold: s.hold, Call: call, Ret: s.tick(ms / 10), Outcome: OK, Token: s.tok})
		valid = s.section(proc, id, valid)
		if s.rng.IntN(20) == 0 { // killed: the lease expires
			s.now = max(s.now, valid+5*ms)
			s.leases = append(s.leases, w)
			return
		}
		begin := s.tick(ms / 10)
		w.release = s.put(Record{Proc: proc, Op: Release, Key: "k", Hold: s.hold, Token: s.tok, Call: begin, Ret: begin + ms/10, Outcome: OK})
	}
	begin := s.tick(ms)
	end := s.tick(ms)
	w.free = s.put(Record{Proc: proc, Op: Free, Key: "k", Lease: id, Call: begin, Ret: end, Outcome: OK})
	s.leases = append(s.leases, w)
}

// section adds checks, writes, samples and a renewal. It returns the deadline.
func (s *story) section(proc int, id string, valid int64) int64 {
	for range s.rng.IntN(5) {
		at := s.tick(20 * ms)
		if at > valid-50*ms {
			return valid
		}
		s.put(Record{Proc: proc, Op: Check, Key: "k", Hold: s.hold, Token: s.tok, Call: at, Ret: at + 1000, Outcome: OK, Live: true})
		s.h.Attempts = append(s.h.Attempts, Attempt{At: at, Key: "k", Proc: proc, Hold: s.hold, Token: s.tok, Accepted: true})
		s.h.Samples = append(s.h.Samples, Sample{Begin: at, End: at + ms/5, Keys: []KeyState{
			{Name: "k", Type: "hash", PTTL: (valid-at)/ms + 1, Fields: map[string]string{id: "1"}},
			{Name: "lockgen:token:{k}", Type: "string", PTTL: 900},
		}})
		if s.rng.IntN(3) == 0 {
			call := s.tick(ms)
			valid = max(valid, call+s.ttl)
			s.put(Record{Proc: proc, Op: Renew, Key: "k", Lease: id, TTL: s.ttl, Call: call, Ret: s.tick(ms), Outcome: OK, Valid: valid})
		}
	}
	return valid
}

func verify(h *History) []Violation { return append(Verify(h), SecondOpinion(h, nil)...) }

func TestLegalHistoriesPass(t *testing.T) {
	for seed := range uint64(200) {
		if found := verify(&legal(seed, 60).h); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found[0])
		}
	}
}

// Each of mistakes is made in many legal histories, at a place that the seed chooses,
// and must be found in every one.
var mistakes = []struct {
	name       string
	invariants []string // at least one of these must be reported
	make       func(s *story) bool
}{
	{"early steal", []string{"I2"}, func(s *story) bool {
		// The key of a killed process is granted to the next process before the end of the lease.
		return s.pair(func(a, b *written) bool {
			if a.free >= 0 {
				return false
			}
			g, last := s.at(b.grant), s.at(a.hold).Ret+20*ms
			g.Call, g.Ret = last, last+ms
			s.at(b.hold).Call, s.at(b.hold).Ret = last, last+ms
			return true
		})
	}},
	{"double grant", []string{"I2", "I3"}, func(s *story) bool {
		return s.pair(func(a, b *written) bool {
			g, inside := s.at(b.grant), s.at(a.grant).Ret+ms/100
			if a.free < 0 || s.at(a.free).Call < inside+10*ms {
				return false
			}
			g.Call, g.Ret, g.Valid = inside, inside+1, inside+s.ttl
			return true
		})
	}},
	{"token repeated", []string{"I1"}, func(s *story) bool {
		return s.pair(func(a, b *written) bool {
			s.at(b.grant).Token = s.at(a.grant).Token
			return true
		})
	}},
	{"token decreasing", []string{"I1"}, func(s *story) bool {
		return s.pair(func(a, b *written) bool {
			if s.at(a.grant).Ret+100*ms > s.at(b.grant).Call {
				return false
			}
			s.at(b.grant).Token = s.at(a.grant).Token - 1
			return true
		})
	}},
	{"token without a lease", []string{"I1"}, func(s *story) bool {
		return s.pair(func(_, b *written) bool {
			s.at(b.hold).Token += 1e9
			return true
		})
	}},
	{"write with an older token", []string{"I4"}, func(s *story) bool {
		if len(s.h.Attempts) < 2 {
			return false
		}
		last := len(s.h.Attempts) - 1
		s.h.Attempts[last], s.h.Attempts[0] = s.h.Attempts[0], s.h.Attempts[last]
		return s.h.Attempts[0].Token != s.h.Attempts[last].Token
	}},
	{"write with another's token", []string{"I4"}, func(s *story) bool {
		if len(s.h.Attempts) == 0 {
			return false
		}
		s.h.Attempts[s.rng.IntN(len(s.h.Attempts))].Hold += 100000
		return true
	}},
	{"effect after the lease", []string{"I5"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			at := s.at(w.grant).Valid + 3000*ms
			h := s.at(w.hold)
			s.put(Record{Proc: h.Proc, Op: Check, Key: "k", Hold: h.Hold, Token: h.Token, Call: at, Ret: at + 1, Outcome: OK})
			return true
		})
	}},
	{"the context does not end", []string{"I5"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			at := s.at(w.grant).Valid + 3000*ms
			h := s.at(w.hold)
			s.put(Record{Proc: h.Proc, Op: Check, Key: "k", Hold: h.Hold, Token: h.Token, Call: at, Ret: at + 1, Outcome: Lost, Live: true})
			return true
		})
	}},
	{"a late release reports no loss", []string{"I6"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			if w.release < 0 {
				return false
			}
			r := s.at(w.release)
			r.Call, r.Ret = r.Call+5000*ms, r.Ret+5000*ms
			return true
		})
	}},
	{"lost without a reason", []string{"I5"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			if w.free < 0 {
				return false
			}
			s.at(w.release).Outcome = Lost
			s.at(w.hold).Renews = true
			return true
		})
	}},
	{"deadline too late", []string{"I3"}, func(s *story) bool {
		return s.sampled(func(_ *Sample, k *KeyState) { k.PTTL -= 100 })
	}},
	{"lock left behind", []string{"I6"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			if w.free < 0 {
				return false
			}
			at := s.at(w.free).Ret + 5*ms
			s.h.Samples = append(s.h.Samples, Sample{Begin: at, End: at + 1, Keys: []KeyState{
				{Name: "k", Type: "hash", PTTL: 10, Fields: map[string]string{w.id: "1"}}}})
			return true
		})
	}},
	{"lock without expiry", []string{"I7"}, func(s *story) bool {
		return s.sampled(func(_ *Sample, k *KeyState) { k.PTTL = -1 })
	}},
	{"lock that lasts too long", []string{"I7"}, func(s *story) bool {
		return s.sampled(func(_ *Sample, k *KeyState) { k.PTTL = 1000 })
	}},
	{"held twice", []string{"I9"}, func(s *story) bool {
		return s.sampled(func(_ *Sample, k *KeyState) {
			for id := range k.Fields {
				k.Fields[id] = "2"
			}
		})
	}},
	{"two owners", []string{"I9"}, func(s *story) bool {
		return s.sampled(func(_ *Sample, k *KeyState) { k.Fields["p1:0"] = "1" })
	}},
	{"a call outlives its context", []string{"N8"}, func(s *story) bool {
		return s.each(func(w *written) bool {
			h := s.at(w.hold)
			h.CtxEnd = h.Ret - 600*ms
			return true
		})
	}},
	{"goroutines left", []string{"I8"}, func(s *story) bool {
		s.h.Records[len(s.h.Records)-1].Outcome = Fail
		return true
	}},
}

func (s *story) at(i int) *Record { return &s.h.Records[i] }

// each calls do for leases, beginning with one that the seed chooses, until do reports
// that it has made the mistake.
func (s *story) each(do func(*written) bool) bool {
	from := s.rng.IntN(len(s.leases))
	for i := range s.leases {
		if do(&s.leases[(from+i)%len(s.leases)]) {
			return true
		}
	}
	return false
}

// pair is like each, for a lease and the next one.
func (s *story) pair(do func(a, b *written) bool) bool {
	from := s.rng.IntN(len(s.leases) - 1)
	for i := range len(s.leases) - 1 {
		if j := (from + i) % (len(s.leases) - 1); do(&s.leases[j], &s.leases[j+1]) {
			return true
		}
	}
	return false
}

func (s *story) sampled(do func(*Sample, *KeyState)) bool {
	if len(s.h.Samples) == 0 {
		return false
	}
	sample := &s.h.Samples[s.rng.IntN(len(s.h.Samples))]
	do(sample, &sample.Keys[0])
	return true
}

func TestEachMistakeIsFound(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			made := 0
			for seed := range uint64(40) {
				s := legal(seed, 40)
				if !m.make(s) {
					continue
				}
				made++
				found := verify(&s.h)
				named := func(v Violation) bool { return slices.Contains(m.invariants, v.Invariant) }
				if !slices.ContainsFunc(found, named) {
					t.Fatalf("seed %d: not found; found only %v", seed, found)
				}
			}
			if made < 20 {
				t.Fatalf("made only in %d histories", made)
			}
		})
	}
}
