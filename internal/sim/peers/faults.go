package peers

import (
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
	"github.com/lockgen/lockgen/internal/sim/vnet"
	"github.com/lockgen/lockgen/internal/soak/history"
)

// kind is one sort of fault. Names, classes and effects are those of package sim.
type kind struct {
	name   string
	class  history.Class
	strike func(e *episode, f sim.Fault, r *fault)
}

var kinds []kind // set in init, because the functions of the faults use it

func init() {
	kinds = []kind{
		// Processes.
		{"pause-client", history.Plain, pauseClient},
		{"stall-clients", history.Plain, stallClients},
		{"kill-client", history.Plain, killClient(false)},
		{"kill-host", history.Plain, killClient(true)},
		// The network.
		{"delay-replies", history.Plain, delay(vnet.Replies)},
		{"delay-requests", history.Plain, delay(vnet.Requests)},
		{"hole", history.Plain, hole},
		{"reset", history.Plain, reset},
		{"refuse", history.Plain, refuse},
		{"lose-acquire", history.Plain, requests(loseReply, isAcquire)},
		{"lose-release", history.Plain, requests(loseReply, isRelease)},
		{"lose-any", history.Plain, requests(loseReply, isAny)},
		{"cut-behind", history.Plain, requests(cutBehind, isAny)},
		{"cut-before", history.Plain, requests(cutBefore, isAny)},
		{"late-acquire", history.Plain, requests(arriveLate, isAcquire)},
		{"late-any", history.Plain, requests(arriveLate, isAny)},
		{"twice", history.Plain, requests(arriveTwice, isAny)},
		// The server.
		{"stop-server", history.Plain, stopServer},
		{"restart-server", history.Plain, restartServer(false)},
		{"empty-server", history.DataLoss, restartServer(true)},
		{"clock-forward", history.DataLoss, jump(1)},
		{"clock-back", history.ClockBack, jump(-1)},
		{"force-unlock", history.ForceFree, forceUnlock},
		{"flush-all", history.DataLoss, command("FLUSHALL")},
		{"script-flush", history.Plain, command("SCRIPT", "FLUSH")},
		{"kill-pubsub", history.Plain, killPubSub},
	}
}

// Kinds returns the names of the faults that an episode may draw. They are the faults of
// package sim for Redis, except those of our Locker only (close-client, evict-token,
// evict-queue) and those by which a server refuses commands (no-memory, no-right, loading,
// read-only).
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// fault is one fault that has begun.
type fault struct {
	kind       string
	class      history.Class
	process    int    // the process that does not run during it, 0, or allProcesses
	key        string // the only key that it affects, or ""
	begin, end time.Time
}

// allProcesses is the value of fault.process for a fault that stops all processes.
const allProcesses = -1

// inForce reports whether f was in force at some moment of [from, to].
func (f *fault) inForce(from, to time.Time) bool {
	return !f.begin.After(to) && (f.end.IsZero() || !f.end.Before(from))
}

// strike makes f happen and records the time.
func (e *episode) strike(f sim.Fault) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == f.Kind })
	r := &fault{kind: f.Kind, class: kinds[i].class, begin: time.Now()}
	e.mu.Lock()
	e.faults = append(e.faults, r)
	e.mu.Unlock()
	e.log("fault %v begins", f)
	kinds[i].strike(e, f, r)
	e.mu.Lock()
	r.end = time.Now()
	e.mu.Unlock()
	e.log("fault %s ends", f.Kind)
}

func pauseClient(e *episode, f sim.Fault, r *fault) {
	p := e.current(f.Process)
	e.mu.Lock()
	r.process = p.number
	e.mu.Unlock()
	p.pause()
	time.Sleep(f.For)
	p.resume()
}

// freeze stops p for d, as pause-client does, unless the plan has no faults or all faults are
// healed.
func (p *process) freeze(d time.Duration) {
	e := p.episode
	d = min(d, time.Until(e.begin.Add(e.plan.Heal)))
	if len(e.plan.Faults) == 0 || d <= 0 {
		return
	}
	r := &fault{kind: "freeze", class: history.Plain, process: p.number, begin: time.Now()}
	e.mu.Lock()
	e.faults = append(e.faults, r)
	e.mu.Unlock()
	e.log("process %d is frozen for %v", p.number, d)
	p.pause()
	time.Sleep(d)
	p.resume()
	e.mu.Lock()
	r.end = time.Now()
	e.mu.Unlock()
}

func stallClients(e *episode, f sim.Fault, r *fault) {
	e.mu.Lock()
	r.process = allProcesses
	e.mu.Unlock()
	sim.Stall(f.For)
}

func killClient(host bool) func(*episode, sim.Fault, *fault) {
	return func(e *episode, f sim.Fault, _ *fault) {
		e.current(f.Process).kill(host)
		time.Sleep(f.For)
		e.spawn(f.Process)
	}
}

func delay(dir vnet.Direction) func(*episode, sim.Fault, *fault) {
	return func(e *episode, f sim.Fault, _ *fault) {
		both := dir
		if f.Both && f.N == 1 {
			both = vnet.Both
		}
		path := e.current(f.Process).path
		path.Delay(both, f.Delay)
		time.Sleep(f.For)
		path.Delay(both, 0)
		time.Sleep(f.Delay) // messages that are on their way are still late
	}
}

// hole holds messages back. At its end they arrive, or the connections are cut.
func hole(e *episode, f sim.Fault, _ *fault) {
	dir := vnet.Both
	if !f.Both {
		dir = vnet.Direction(1 + f.N%2)
	}
	path := e.current(f.Process).path
	path.Hole(dir)
	time.Sleep(f.For)
	if f.N < 4 {
		path.Reset()
	}
	path.Heal()
}

func reset(e *episode, f sim.Fault, _ *fault) {
	for range f.N {
		e.current(f.Process).path.Reset()
		time.Sleep(f.Delay / 4)
	}
}

func refuse(e *episode, f sim.Fault, _ *fault) {
	path := e.current(f.Process).path
	path.Refuse()
	path.Reset()
	time.Sleep(f.For)
	path.Heal()
}

// requests returns a fault that applies act to some of the next requests that match.
func requests(act action, match func(Request) bool) func(*episode, sim.Fault, *fault) {
	return func(e *episode, f sim.Fault, _ *fault) {
		one := &rule{match: match, left: f.N, action: act}
		switch act {
		case arriveLate:
			one.delay = f.For
		case cutBehind:
			one.delay = f.Delay / 50
		}
		end := e.current(f.Process).link.strike(one)
		time.Sleep(f.For)
		e.log("fault %s affected %d requests", f.Kind, f.N-end())
		time.Sleep(one.delay)
	}
}

func isAcquire(r Request) bool { return r == Acquire }
func isRelease(r Request) bool { return r == Release }

// isAny matches all requests about locks.
func isAny(r Request) bool { return r != None }

func stopServer(e *episode, f sim.Fault, _ *fault) {
	e.server.Pause()
	time.Sleep(f.For)
	e.server.Resume()
}

func restartServer(empty bool) func(*episode, sim.Fault, *fault) {
	return func(e *episode, f sim.Fault, _ *fault) {
		e.server.Stop()
		time.Sleep(f.For)
		e.server.Start(empty)
	}
}

// jump returns a fault that sets the clock forward or back by up to 1.2 TTLs.
func jump(sign time.Duration) func(*episode, sim.Fault, *fault) {
	return func(e *episode, f sim.Fault, _ *fault) {
		e.server.Jump(sign * f.Delay * time.Duration(f.N) / 5)
	}
}

func forceUnlock(e *episode, f sim.Fault, r *fault) {
	e.mu.Lock()
	r.key = f.Key
	e.mu.Unlock()
	e.server.Free(e.peer.ServerKey(f.Key))
}

func command(words ...string) func(*episode, sim.Fault, *fault) {
	return func(e *episode, _ sim.Fault, _ *fault) { _, _ = e.server.Do(words...) }
}

func killPubSub(e *episode, _ sim.Fault, _ *fault) {
	for _, p := range e.processes() {
		p.link.killSubscriptions()
	}
}
