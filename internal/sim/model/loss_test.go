package model

import (
	"context"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// G6: an undo frees a lock that an attempt without an answer has taken.
func TestLostReply(t *testing.T) {
	each(t, func(w *world) {
		w.freed(w.taken(w.a, wish("A:1"))) // so that the client is connected and has a session
		w.server.Mute(1)
		ctx, cancel := context.WithTimeout(w.Context(), trip)
		defer cancel()
		a := wish("A:2")
		_, err := w.a.Acquire(ctx, a)
		w.fails(err, lock.ErrIndeterminate)
		if !a.MayHaveRun {
			w.Error("MayHaveRun is not set although an attempt had no answer")
		}
		w.holds("A:2")
		for tries := 1; w.a.Undo(w.Context(), a) != nil; tries++ { // the first tries give up the silent connections
			if tries == 5 {
				w.Fatal("the acquisition can't be undone")
			}
		}
		w.holds()
		w.freed(w.taken(w.b, wish("B:1")))
	})
}

// TestUndoIsOwed checks that a failed undo is repeated while its session lives on for another lease.
func TestUndoIsOwed(t *testing.T) {
	each(t, func(w *world) {
		a := wish("A:1")
		a.TTL = time.Minute
		w.taken(w.a, a) // the Locker does not learn of this
		w.path.Refuse()
		w.path.Reset()
		if w.a.Undo(w.Context(), a) == nil {
			w.Fatal("the undo succeeded without a connection")
		}
		w.path.Heal()
		time.Sleep(3 * undoAgain)
		w.holds()
	}, Etcd, ZooKeeper, Consul)
}

// TestResend checks that an attempt without an answer is sent again, and that there is only one lease.
func TestResend(t *testing.T) {
	each(t, func(w *world) {
		w.freed(w.taken(w.a, wish("A:1")))
		w.server.Mute(1)
		time.AfterFunc(trip, w.path.Reset)
		a := wish("A:2")
		l := w.taken(w.a, a)
		if !a.MayHaveRun {
			w.Error("MayHaveRun is not set although an attempt had no answer")
		}
		w.freed(l)
		w.holds()
	})
}

// G6: an attempt that arrives after its undo takes nothing.
func TestLateRequest(t *testing.T) {
	each(t, func(w *world) {
		w.freed(w.taken(w.a, wish("A:1")))
		const late = 100 * time.Millisecond
		begin := time.Now()
		w.path.Delay(vnet.Requests, late)
		ctx, cancel := context.WithTimeout(w.Context(), trip)
		defer cancel()
		a := wish("A:2")
		_, err := w.a.Acquire(ctx, a)
		w.fails(err, lock.ErrIndeterminate)
		w.path.Delay(vnet.Requests, 0)
		w.holds()
		if w.server.kind == ZooKeeper { // its connection keeps the order, and the server ignores an old connection after a new one
			w.a.slots[0].giveUp()
		}
		w.ok(w.a.Undo(w.Context(), a))
		if time.Since(begin) >= late {
			w.Error("the undo did not overtake the attempt")
		}
		time.Sleep(late)
		w.holds()
		w.freed(w.taken(w.b, wish("B:1")))
	})
}

// G6: a repeated attempt that arrives after the release of its lease takes nothing.
func TestLateDuplicate(t *testing.T) {
	each(t, func(w *world) {
		w.freed(w.taken(w.a, wish("A:1")))
		const late = timeout + 100*time.Millisecond
		w.path.Delay(vnet.Requests, late)
		time.AfterFunc(latency, func() { w.path.Delay(vnet.Requests, 0) })
		begin := time.Now()
		w.freed(w.taken(w.a, wish("A:2")))
		if took := time.Since(begin); took < timeout/2 || took > late {
			w.Errorf("the lock was taken and released within %v", took)
		}
		time.Sleep(late)
		w.holds()
	})
}

// TestSessionLoss checks that all leases of a session are over when the server ends it, and that the holders
// are notified at once.
func TestSessionLoss(t *testing.T) {
	each(t, func(w *world) {
		l := w.taken(w.a, wish("A:1"))
		told := look(l)
		w.server.Free("k")
		time.Sleep(trip)
		if told.Load() != 1 {
			w.Fatalf("%d notifications that the lock was deleted", told.Load())
		}
		l = w.taken(w.a, wish("A:2"))
		other := wish("A:3")
		other.Key = "other"
		m := w.taken(w.a, other)
		told, also := look(l), look(m)
		w.server.Stop()
		w.server.Start(true)
		time.Sleep(ttl/proofs + 4*trip)
		if told.Load() != 1 || also.Load() != 1 {
			w.Errorf("%d and %d notifications that the session has ended", told.Load(), also.Load())
		}
		w.fails(l.Renew(w.Context(), ttl), lock.ErrLost)
		w.freed(w.taken(w.a, wish("A:4"))) // on a new session
	}, Etcd, ZooKeeper, Consul)
}

// TestCutOff checks that for a process that is cut off the lease ends earlier than at the server.
func TestCutOff(t *testing.T) {
	each(t, func(w *world) {
		l := w.taken(w.a, wish("A:1"))
		end := l.Deadline()
		w.path.Hole(vnet.Both)
		begin := time.Now()
		for time.Since(begin) < 5*ttl {
			got, err := w.b.Acquire(w.Context(), wish("B:1"))
			if err == nil {
				w.freed(got)
				break
			}
			time.Sleep(time.Millisecond)
		}
		if end.Left() > 0 {
			w.Errorf("another process has the lock %v before the end of the lease", end.Left())
		}
		if most := 2*length(ttl) + trip; time.Since(begin) > most {
			w.Errorf("the lock was free after %v", time.Since(begin))
		}
	})
}

// G3: tokens rise over releases, ends of sessions, restarts and clocks that go back.
func TestTokens(t *testing.T) {
	each(t, func(w *world) {
		last := uint64(0)
		for i, happens := range []func(){
			func() {},
			func() { w.server.Stop(); w.server.Start(false) },
			func() { w.server.Jump(-time.Second) },
			func() { w.server.Free("k") },
			func() { w.server.Pause(); time.Sleep(3 * ttl); w.server.Resume() },
			func() { w.server.Stop(); w.server.Start(true); w.server.Jump(2 * time.Second) },
		} {
			a := wish("A:" + string(rune('1'+i)))
			a.Tokens = 100000
			l := w.taken(w.a, a)
			first, n := l.Tokens()
			if first <= last || n < 1<<16 {
				w.Errorf("%d tokens from %d on, after %d", n, first, last)
			}
			last = first + 2
			if i == 0 {
				w.ok(l.Release(w.Context(), last))
			} else {
				last = first + n - 1
			}
			happens()
			for tries := 0; len(w.server.Snapshot()) > 0 && tries < 10; tries++ {
				time.Sleep(ttl)
			}
		}
	})
}

// TestRestart checks that a restart gives each session its full time again, but does not change the expiry of a row.
func TestRestart(t *testing.T) {
	each(t, func(w *world) {
		w.taken(w.a, wish("A:1"))
		w.path.Hole(vnet.Both)
		time.Sleep(ttl - trip)
		w.server.Stop()
		w.server.Start(false)
		time.Sleep(ttl / 2)
		if w.server.kind == Row {
			w.holds()
		} else {
			w.holds("A:1")
		}
		time.Sleep(3 * ttl)
		w.holds()
	})
}

func TestPause(t *testing.T) {
	each(t, func(w *world) {
		w.taken(w.a, wish("A:1"))
		w.server.Pause()
		ctx, cancel := context.WithTimeout(w.Context(), trip)
		defer cancel()
		begin := time.Now()
		b := wish("B:1")
		_, err := w.b.Acquire(ctx, b)
		if err == nil || time.Since(begin) > trip {
			w.Errorf("got %v after %v", err, time.Since(begin))
		}
		time.Sleep(4 * ttl) // its clock continues
		w.server.Resume()
		time.Sleep(trip)
		w.ok(w.b.Undo(w.Context(), b))
		w.holds()
	})
}

// TestUndoneRowGivesTokensBack checks that the undo of an acquisition, which has used no token, returns the tokens that it
// had reserved ahead of the clock.
func TestUndoneRowGivesTokensBack(t *testing.T) {
	each(t, func(w *world) {
		a := wish("one")
		a.Tokens = 400_001 // 100 ms of the clock
		first, _ := w.taken(w.a, a).Tokens()
		w.ok(w.a.Undo(context.Background(), a))
		l := w.taken(w.a, wish("two"))
		defer w.freed(l)
		if next, _ := l.Tokens(); next <= first || next >= first+a.Tokens {
			w.Errorf("the first token is %d after %d, which was never used", next, first)
		}
	}, Row)
}
