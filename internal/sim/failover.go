package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

const (
	// agreed is the key of the records by which processes agree at their servers.
	agreed = "sim.agreed"

	silence   = 400 * time.Millisecond
	probe     = 100 * time.Millisecond // also the Timeout
	drain     = (longestTTL + silence) * 51 / 50
	rests     = drain + 4*probe
	standby   = "standby"
	standby2  = "standby 2"
	theRecord = 2 // index of its server; after it comes the second standby, if there is one

	// resumes is the longest time from the failure of the granting engine to a grant by the other, if the
	// epoch of the previous switch has rested: three probes, the reading after them, the wait, the
	// next reading, and at most a second until a waiter tries again.
	resumes = 3*(probe+probe) + drain + 3*probe + time.Second
)

func isFailover(engine string) bool { return engine == "failover" }

// newFailover starts a primary, a standby whose clock is behind, and the server of the record.
func newFailover() engine {
	s := newSeveral(3)
	s.servers[1].Jump(-2 * time.Second)
	s.made = func(all []driver.Backend) whole {
		return failover.New(all[0], slices.Delete(slices.Clone(all[1:]), theRecord-1, theRecord), failover.Options{
			Record: all[theRecord], Key: agreed, LongestTTL: longestTTL, Silence: silence, Probe: probe, Timeout: probe, OnSwitch: s.switched,
		})
	}
	s.begin()
	return s
}

// begin writes the first record, in which no engine has been in use.
func (s *several) begin() {
	b := s.Connect(vnet.NewPath(0, 0, 0), time.Second).(*closingAll)
	if err := b.whole.(interface{ Begin(context.Context) error }).Begin(context.Background()); err != nil {
		panic(err) // there is no fault yet
	}
	_ = b.Close()
}

// switched stores the status that a process has read from the record.
func (s *several) switched(is failover.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is.Epoch > s.grants.Epoch {
		s.since = time.Now()
	}
	if is.Epoch >= s.grants.Epoch {
		s.grants = is
	}
}

// granting waits until the epoch has rested and returns the engine that grants, or nil if there is none soon.
func (s *several) granting() *Redis {
	for range 5 * rests / probe {
		s.mu.Lock()
		is, age := s.grants, time.Since(s.since)
		s.mu.Unlock()
		switch {
		case !is.Open || age < rests:
			time.Sleep(probe)
		case is.Engine == standby:
			return s.servers[1]
		case is.Engine == standby2:
			return s.servers[theRecord+1]
		default:
			return s.servers[0]
		}
	}
	return nil
}

// opened waits until the engine to which the last probes of a fault may have switched grants. The fault lasts
// until then, because there is no grant before.
func (s *several) opened() {
	time.Sleep(3 * probe)
	for range 5 * rests / probe {
		s.mu.Lock()
		open := s.grants.Open
		s.mu.Unlock()
		if open {
			return
		}
		time.Sleep(probe)
	}
}

// alone delays f until no other fault that limits the time without a grant is in force.
func alone(f func(*episode, Fault, *history.Fault)) func(*episode, Fault, *history.Fault) {
	return func(e *episode, fault Fault, r *history.Fault) {
		turn := e.engine.(*several).turn
		turn <- struct{}{}
		defer func() { <-turn }()
		time.Sleep(aftermath + probe) // the aftermath of the fault before
		r.Begin = clock()
		f(e, fault, r)
	}
}

// leaveEngine makes the granting engine hang, die, or die and lose its data, until the other grants.
func leaveEngine(e *episode, f Fault, r *history.Fault) {
	server := e.engine.(*several).granting()
	if server == nil {
		return
	}
	r.Begin = clock()
	if f.N%3 == 0 {
		server.Pause()
		defer server.Resume()
	} else {
		server.Stop()
		defer server.Start(f.N%3 == 1)
	}
	time.Sleep(resumes + probe)
	r.Resumes, r.Detail = int64(resumes), fmt.Sprint("variant ", f.N%3)
}

// differ disconnects two processes from different engines, so that they disagree which engine is down.
func differ(e *episode, f Fault, r *history.Fault) {
	s, first, second := e.engine.(*several), e.current(f.Process).number, e.current((f.Process+1)%len(e.plan.Processes)).number
	s.servers[0].part(first, true)
	s.servers[1].part(second, true)
	limit := 2*rests + resumes
	time.Sleep(limit + probe)
	s.servers[0].part(first, false)
	s.servers[1].part(second, false)
	if first != second { // otherwise that process could get no lock
		r.Resumes = int64(limit)
	}
}

// loseRecord restarts the server of the record without its data.
func loseRecord(e *episode, f Fault, _ *history.Fault) {
	server := e.engine.(*several).servers[theRecord]
	server.Stop()
	time.Sleep(f.For)
	server.Start(true)
	time.Sleep(drain)
}

// switchByHand lets an operator switch.
func switchByHand(e *episode, f Fault, r *history.Fault) {
	b := e.engine.Connect(vnet.NewPath(e.plan.Latency, e.plan.Seed, -1-f.N), time.Second).(*closingAll)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := e.engine.(*several)
	s.mu.Lock()
	r.Detail = map[bool]string{true: "primary", false: standby}[s.grants.Engine == standby]
	s.mu.Unlock()
	if f.Both && len(s.servers) > theRecord+1 {
		r.Detail = standby2
	}
	_ = b.whole.(*failover.Backend).Switch(ctx, r.Detail)
	_ = b.Close()
	time.Sleep(drain)
}

// blind lets an operator switch while a process can't read the record.
func blind(e *episode, f Fault, r *history.Fault) {
	record, number := e.engine.(*several).servers[theRecord], e.current(f.Process).number
	record.part(number, true)
	switchByHand(e, f, r)
	time.Sleep(2 * probe)
	record.part(number, false)
}

// resumed checks L3: if a fault has a limit for the time without a grant, and no other fault is in
// force, there must be a grant within that time.
func (r *Result) resumed() (found []history.Violation) {
	for i, f := range r.History.Faults {
		others := slices.Delete(slices.Clone(r.History.Faults), i, i+1)
		if f.Resumes == 0 || !quiet(others, f.Begin, f.End) {
			continue
		}
		r.Bounded++
		granted := func(one history.Record) bool {
			return one.Op == history.Grant && one.Outcome == history.OK && one.Call > f.Begin && one.Ret <= f.Begin+f.Resumes
		}
		if !slices.ContainsFunc(r.History.Records, granted) {
			found = append(found, history.Violation{Invariant: "L3", At: f.End,
				Text: fmt.Sprintf("nobody was granted a lock within %v of %s", time.Duration(f.Resumes), f.Kind)})
		}
	}
	return found
}
