package history

import (
	"testing"
)

// TestEarlyGrant checks that a lock that the engine granted before the request counts from the grant on, and
// only for the length of a provisional lease.
func TestEarlyGrant(t *testing.T) {
	at := func(n int64) int64 { return 1e12 + n*ms }
	early := func(since int64) Record {
		return Record{Proc: 1, Seq: 2, Op: Grant, Key: "k", Lease: "a:1", Call: at(600), Ret: at(601), Outcome: OK,
			Token: 10, Tokens: 1, TTL: 1000 * ms, Valid: at(700), Since: since}
	}
	next := func(ret int64) Record {
		return Record{Proc: 2, Seq: 2, Op: Grant, Key: "k", Lease: "b:1", Call: at(599), Ret: ret, Outcome: OK,
			Token: 20, Tokens: 1, TTL: 1000 * ms, Valid: at(1600)}
	}
	forced := Fault{Kind: "force-unlock", Class: ForceFree, Key: "k", Begin: at(300), End: at(400)}
	for _, c := range []struct {
		name    string
		records []Record
		faults  []Fault
		wrong   bool
	}{
		{"over", []Record{early(at(200)), next(at(705))}, nil, false},
		{"too early", []Record{early(at(200)), next(at(650))}, nil, true},
		{"force-unlocked before the request", []Record{early(at(200)), next(at(650))}, []Fault{forced}, false},
		{"granted after another lock was force-unlocked", []Record{early(at(450)), next(at(650))}, []Fault{forced}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &History{Keys: []string{"k"}, Faults: c.faults}
			for p, id := range []string{"a", "b"} {
				h.Records = append(h.Records, Record{Proc: p + 1, Seq: 1, Op: Started, Lease: id, Call: at(0), Ret: at(0), Outcome: OK})
			}
			h.Records = append(h.Records, c.records...)
			if found := Verify(h); len(found) > 0 != c.wrong {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestUnusedTokensAreGrantedAgain checks that a lease that came too late is returned with all its tokens, and
// that the next lease may have them.
func TestUnusedTokensAreGrantedAgain(t *testing.T) {
	for last, wrong := range map[uint64]string{99: "", 100: "I1"} {
		h := newBuilder()
		grant := Record{Op: Grant, Lease: "p1:1", Token: 100, Tokens: 1, TTL: 100 * ms, Valid: 1e12 + 100*ms}
		h.put(1, grant, 1, 200)
		h.put(1, Record{Op: Free, Lease: "p1:1", Token: last}, 200, 201)
		grant.Lease, grant.Valid = "p2:1", 1e12+402*ms
		h.put(2, grant, 300, 302)
		expect(t, &h.h, wrong)
	}
}

// TestUnusedTokensAreGrantedEarly checks a next lease that was granted early. The time of that grant is an estimate, which may be
// before the call of the unused one.
func TestUnusedTokensAreGrantedEarly(t *testing.T) {
	h := newBuilder()
	grant := Record{Op: Grant, Lease: "p1:1", Token: 100, Tokens: 1, TTL: 100 * ms, Valid: 1e12 + 600*ms, Outcome: OK}
	h.put(1, grant, 500, 700)
	h.put(1, Record{Op: Free, Lease: "p1:1", Token: 99}, 700, 701)
	grant.Lease, grant.TTL, grant.Valid, grant.Since = "p2:1", 500*ms, 1e12+1200*ms, 1e12+200*ms
	h.put(2, grant, 705, 705)
	expect(t, &h.h, "")
}

// TestBriefGrantOfAnAttempt checks that a waiter in the engine's queue is first granted a provisional lease, even by an attempt that it
// makes at that moment. Until the renewal the engine need not keep the lease for longer.
func TestBriefGrantOfAnAttempt(t *testing.T) {
	for from, wrong := range map[int64]string{300: "I2", 510: ""} {
		h := newBuilder()
		h.put(1, Record{Op: Grant, Lease: "p1:1", Hold: 1, Token: 100, Tokens: 1, TTL: 1000 * ms, Valid: 1e12 + 501*ms, Outcome: OK}, 1, 1)
		h.put(1, Record{Op: Renew, Lease: "p1:1", TTL: 1000 * ms, Valid: 1e12 + 501*ms, Outcome: Lost}, 600, 600)
		h.put(2, Record{Op: Grant, Lease: "p2:1", Hold: 1, Token: 200, Tokens: 1, TTL: 1000 * ms, Valid: 1e12 + 2000*ms, Outcome: OK}, from, from)
		expect(t, &h.h, wrong)
	}
}

// TestGrantAfterTheBackendWasClosed checks that a grant whose answer comes after the backend was closed belongs to no process, since Close
// has released its session.
func TestGrantAfterTheBackendWasClosed(t *testing.T) {
	for closed, wrong := range map[int64]string{50: "", 70: "I2"} {
		h := newBuilder()
		h.put(1, Record{Op: Grant, Lease: "p1:1", Hold: 1, Token: 100, Tokens: 1, TTL: 400 * ms, Valid: 1e12 + 410*ms, Outcome: OK}, 10, 100)
		h.put(1, Record{Op: Shut}, closed, closed)
		h.put(2, Record{Op: Grant, Lease: "p2:1", Hold: 1, Token: 200, Tokens: 1, TTL: 400 * ms, Valid: 1e12 + 460*ms, Outcome: OK}, 60, 65)
		expect(t, &h.h, wrong)
	}
}

// TestDeadlineThatMovesAfterARenewal checks a deadline that moves after the end of a renewal: members of a quorum may answer after
// the majority, which makes the lease longer. The record of the release has the new deadline.
func TestDeadlineThatMovesAfterARenewal(t *testing.T) {
	for valid, wrong := range map[int64]string{450: "", 420: "I5"} {
		h := newBuilder()
		h.put(1, Record{Op: Grant, Lease: "p1:1", Hold: 1, Token: 100, Tokens: 1, TTL: 400 * ms, Valid: 1e12 + 400*ms}, 1, 2)
		h.put(1, Record{Op: Acquire, Hold: 1, Token: 100, TTL: 400 * ms}, 1, 2)
		h.put(1, Record{Op: Renew, Lease: "p1:1", TTL: 400 * ms, Valid: 1e12 + 410*ms}, 10, 20)
		h.put(1, Record{Op: Check, Hold: 1, Live: true}, 430, 430)
		h.put(1, Record{Op: Free, Lease: "p1:1", Token: 100, Valid: 1e12 + valid*ms}, 440, 441)
		h.put(1, Record{Op: Release, Hold: 1, Token: 100}, 440, 441)
		expect(t, &h.h, wrong)
	}
}
