package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// resumes is the longest time from the loss of the granting engine until the other engine grants. Three
// probes notice the loss, and the look after them decides on the switch. The switch waits. The next look
// opens the epoch, and a waiter tries again within a second.
const resumes = 3*(200+200)*time.Millisecond + drain + 3*200*time.Millisecond + time.Second

// Under load, the granting engine is killed again and again: it refuses connections, hangs, or restarts empty.
func TestKilledUnderLoad(t *testing.T) {
	const kills = 36 // six of each kind of death and return
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 3)
		for _, p := range w.processes {
			w.load(p, 3, 2)
		}
		var gaps []time.Duration
		granting, other := w.primary, w.standby
		for i := range kills {
			time.Sleep(drain + 2*time.Second) // until the epoch has been known for drain, so that it may end
			killed := time.Now()
			granting.set(func() { granting.dead, granting.hung = i%3 != 0, i%3 == 0 })
			for ; ; time.Sleep(10 * time.Millisecond) {
				w.mu.Lock()
				last := w.last
				w.mu.Unlock()
				if gap := last.Sub(killed); gap > quick.LongestTTL { // certainly not a holder at the old engine
					gaps = append(gaps, gap)
					break
				}
				if time.Since(killed) > 10*drain {
					t.Fatalf("kill %d: nobody got a lock for %v", i, time.Since(killed))
				}
			}
			if i%2 == 0 {
				granting.restart()
			} else {
				granting.set(func() { granting.dead, granting.hung = false, false })
			}
			granting, other = other, granting
		}
		w.end()
		slices.Sort(gaps)
		t.Logf("%d kills, %d holds: the next holder got a lock after %v to %v, the median %v; the bound is %v",
			kills, w.holds, gaps[0], gaps[kills-1], gaps[kills/2], resumes)
		if gaps[kills-1] > resumes {
			t.Errorf("the next holder got a lock after %v; the bound is %v", gaps[kills-1], resumes)
		}
	})
}

// A process that can't read the record grants nothing, and its holds end before another process can
// have switched. The other processes continue.
func TestProcessWithoutTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		alone, other := w.processes[0], w.processes[1]
		ctx, h, err := alone.Acquire(t.Context(), &lock.Policy{TTL: 3 * time.Second}, "held")
		if err != nil {
			t.Fatal(err)
		}
		alone.record.cut.Store(true)
		cut := time.Now()
		if err := other.backend.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		if !errors.Is(context.Cause(ctx), lock.ErrLost) || time.Since(cut) > 5*time.Second {
			t.Errorf("a hold of a process that can't read the record ended after %v: %v", time.Since(cut), context.Cause(ctx))
		}
		h.Release(nil)
		if _, _, err := alone.Acquire(t.Context(), nil, "key"); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("an acquire with a ttl of 30s, which is too long: %v", err)
		}
		if _, _, err := alone.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key"); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("an acquire without the record: %v; the primary must not grant", err)
		}
		_, h, err = other.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "held")
		if took := time.Since(cut); err != nil || took < drain {
			t.Errorf("the standby granted after %v: %v; a switch waits for %v", took, err, drain)
		}
		h.Release(nil)
		alone.record.cut.Store(false)
		time.Sleep(time.Second) // the look that is under way fails
		_, h, err = alone.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key")
		if err != nil {
			t.Errorf("an acquire after the process can read the record again: %v", err)
		}
		h.Release(nil)
		w.end()
	})
}

// S91: only one process can't reach the primary. It switches all processes, and no key has two holders.
func TestProcessWithoutThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 3)
		for _, p := range w.processes {
			w.load(p, 2, 1)
		}
		time.Sleep(2 * drain)
		w.processes[0].primary.cut.Store(true)
		w.granting(w.processes[1], "standby", resumes)
		time.Sleep(2 * drain)
		w.processes[1].standby.cut.Store(true) // now another process can't reach the standby
		time.Sleep(20 * drain)
		s, err := w.processes[2].backend.Status(t.Context())
		if err != nil || s.Epoch < 4 || s.Epoch > 24 {
			t.Errorf("two processes that differ about which engine is away have switched to %+v, %v; one switch for each wait is right", s, err)
		}
		w.end()
	})
}

// flapping is an engine that answers one probe of three.
type flapping struct {
	*link
	n int
}

func (f *flapping) Ping(ctx context.Context) error {
	if f.n++; f.n%3 != 0 {
		return errDead
	}
	return f.link.Ping(ctx)
}

// If the granting engine answers one probe of three, there is no switch. If the other engine does, there
// is no switch to it, even while the granting engine is dead.
func TestFlapping(t *testing.T) {
	for _, flaps := range []string{"primary", "standby"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var primary, standby driver.Backend = &flapping{link: &link{server: w.primary}}, &link{server: w.standby}
			if flaps == "standby" {
				primary, standby = &link{server: w.primary}, &flapping{link: &link{server: w.standby}}
			}
			o := quick
			o.Record = &link{server: w.third}
			b := failover.New(primary, []driver.Backend{standby}, o)
			if err := b.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if flaps == "standby" {
				w.primary.set(func() { w.primary.dead = true })
			}
			for range 10 {
				time.Sleep(drain)
				if s, err := b.Status(t.Context()); err != nil || s.Engine != "primary" || !s.Open {
					t.Errorf("the record is %+v, %v, although the %s answers one probe of three", s, err, flaps)
					break
				}
			}
			_ = b.Close()
		})
	}
}

// An operator switches to the standby and back. The standby's own tokens are low, but the tokens of the failover
// still rise.
func TestSwitchedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.standby.less = uint64(time.Now().UnixMicro())*driver.TokensPerMicrosecond - 1000
		var changes []failover.Status
		for range 3 {
			w.join()
		}
		o := quick
		o.Record, o.OnSwitch = &link{server: w.third}, func(s failover.Status) { changes = append(changes, s) }
		watching := failover.New(&link{server: w.primary}, []driver.Backend{&link{server: w.standby}}, o)
		if err := watching.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := watching.Status(t.Context()); err != nil { // starts watching the record
			t.Fatal(err)
		}
		for _, p := range w.processes {
			w.load(p, 2, 2)
		}
		for i := range 10 {
			to := []string{"standby", "primary"}[i%2]
			time.Sleep(2 * time.Second)
			begin, p := time.Now(), w.processes[i%3]
			if err := p.backend.Switch(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			w.granting(p, to, resumes)
			if took := time.Since(begin); took < drain {
				t.Errorf("%q grants after %v; a switch must wait for %v", to, took, drain)
			}
			if err := p.backend.Switch(t.Context(), to); err != nil {
				t.Errorf("Switch to the engine that grants: %v", err)
			}
		}
		if err := w.processes[0].backend.Switch(t.Context(), "nowhere"); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("Switch to an unknown engine: %v", err)
		}
		w.end()
		_ = watching.Close()
		if w.holds < 100 {
			t.Errorf("there were only %d holds", w.holds)
		}
		if want := 21; len(changes) != want || changes[1].Engine != "standby" || changes[1].Open || !changes[2].Open {
			t.Errorf("OnSwitch got %d changes, want %d: %+v", len(changes), want, changes)
		}
	})
}

// The Record loses its data again and again. Nobody is granted a lock that another may hold.
func TestRecordLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		for _, p := range w.processes {
			w.load(p, 2, 1)
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			if err := w.processes[0].backend.Switch(t.Context(), "standby"); err != nil {
				t.Fatal(err)
			}
			w.granting(w.processes[1], "standby", resumes)
			w.third.restart()
			w.load(w.join(), 2, 1) // a process that has never read the record
			time.Sleep(2 * drain)
			w.granting(w.processes[0], "standby", drain)
			if err := w.processes[0].backend.Switch(t.Context(), "primary"); err != nil {
				t.Fatal(err)
			}
			w.granting(w.processes[1], "primary", resumes)
		}
		w.end()
	})
}

// A first start waits, because the record may have been lost. A process that starts while a switch
// waits also waits.
func TestFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begin := time.Now()
		p := w.join()
		time.Sleep(time.Second)
		w.refused(p, "key")
		_, h, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key")
		if took := time.Since(begin); err != nil || took < drain || took > drain+2*time.Second {
			t.Errorf("the first start took %v: %v; want a little more than %v", took, err, drain)
		}
		h.Release(nil)
		if err := p.backend.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drain - time.Second)
		late := w.join()
		if err := late.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "the failover waits until") {
			t.Errorf("Ping of a process that starts while a switch waits: %v", err)
		}
		w.refused(late, "key")
		time.Sleep(2 * time.Second)
		if err := late.Ping(t.Context()); err != nil {
			t.Errorf("Ping after the switch has waited: %v", err)
		}
		w.end()
	})
}

// Calls that wait during a switch continue to wait. They are notified of a release at the next engine, and
// have no place left in the queue of the old engine.
func TestWaitsOverASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 3)
		short := &lock.Policy{TTL: 3 * time.Second}
		first, h, err := w.processes[0].Acquire(t.Context(), short, "key")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *lock.Hold, 2)
		for _, p := range w.processes[1:] {
			go func() {
				_, h, err := p.Acquire(context.Background(), short, "key")
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
		}
		time.Sleep(time.Second)
		if err := w.processes[0].backend.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		switched := time.Now()
		<-first.Done()
		if took := time.Since(switched); took > short.TTL+quick.Probe {
			t.Errorf("a hold at the old engine ended %v after the switch; its lease must not be renewed", took)
		}
		second := <-got
		h.Release(nil)
		time.Sleep(3 * time.Second)
		released := time.Now()
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
		third := <-got
		if took := time.Since(released); took > 100*time.Millisecond {
			t.Errorf("the waiter at the next engine got the lock %v after the release", took)
		}
		third.Release(nil)
		w.primary.set(func() {
			if n := len(w.primary.undone); n != 2 {
				t.Errorf("two calls have waited at the primary, but %d places were given up", n)
			}
		})
		w.end()
	})
}

// A call whose attempt hangs at an engine gets the lock at the other engine after the switch.
func TestWaitsAtAHungEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		w.primary.set(func() { w.primary.hung = true })
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, h, err := w.processes[0].Acquire(ctx, &lock.Policy{TTL: time.Second}, "key")
		if took := time.Since(begin); err != nil || took > resumes+drain { // the first epoch may only end after drain
			t.Errorf("granted after %v: %v", took, err)
		}
		h.Release(nil)
		w.primary.set(func() { w.primary.hung = false })
		w.end()
	})
}

// A late undo leaves the place to a later acquisition of the Locker. The switch gives that place
// up.
func TestLateUndoBeforeASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 2)
		_, h, err := w.processes[0].Acquire(t.Context(), &lock.Policy{TTL: 3 * time.Second}, "key")
		if err != nil {
			t.Fatal(err)
		}
		p := w.processes[1]
		var attempts []*driver.Acquisition
		for n := range 2 {
			a := &driver.Acquisition{Key: "key", ID: fmt.Sprintf("00000000-0000-8000-8000-000000000001:%d", n), TTL: 3 * time.Second, Tokens: 1, Queue: true}
			var held *driver.HeldError
			if _, err := p.backend.Acquire(t.Context(), a); !errors.As(err, &held) {
				t.Fatalf("want a HeldError, got %v", err)
			}
			attempts = append(attempts, a)
		}
		if err := p.backend.Undo(t.Context(), attempts[0]); err != nil {
			t.Fatal(err)
		}
		w.primary.set(func() { w.primary.undone = nil })
		if err := p.backend.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		w.granting(p, "standby", 2*drain)
		l, err := p.backend.Acquire(t.Context(), attempts[1])
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.primary.set(func() {
			if len(w.primary.undone) != 1 {
				t.Errorf("one acquisition has waited at the primary, but the places of these keys were given up: %q", w.primary.undone)
			}
		})
		first, _ := l.Tokens()
		if err := l.Release(t.Context(), first); err != nil {
			t.Error(err)
		}
		h.Release(nil)
		w.end()
	})
}
