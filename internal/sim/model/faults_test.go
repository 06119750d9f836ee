package model

import (
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// fault is one planned fault.
type fault struct {
	kind    string
	class   history.Class
	process int
	key     string
	n       int
	at      time.Duration
	length  time.Duration
	strike  func(e *episode, f fault, p *process)
}

// faults lists the possible faults. Those of a class that only Row has do nothing on other engines.
var faults = []fault{
	{kind: "delay", strike: func(_ *episode, f fault, p *process) {
		d := f.length / 2
		p.path.Delay(f.direction(), d)
		time.Sleep(f.length)
		p.path.Delay(vnet.Both, 0)
		time.Sleep(d)
	}},
	{kind: "hole", strike: func(_ *episode, f fault, p *process) {
		p.path.Hole(f.direction())
		time.Sleep(f.length)
		if f.n%2 == 0 {
			p.path.Reset()
		}
		p.heal()
	}},
	{kind: "late", strike: func(_ *episode, f fault, p *process) { // delays a few requests, so that others overtake them
		p.path.Delay(vnet.Requests, f.length)
		time.Sleep(time.Duration(f.n) * time.Millisecond)
		p.path.Delay(vnet.Requests, 0)
		time.Sleep(f.length)
	}},
	{kind: "reset", strike: func(_ *episode, f fault, p *process) {
		for range f.n {
			p.path.Reset()
			time.Sleep(f.length / 8)
		}
	}},
	{kind: "refuse", strike: func(_ *episode, f fault, p *process) {
		p.path.Refuse()
		p.path.Reset()
		time.Sleep(f.length)
		p.heal()
	}},
	{kind: "mute", strike: func(e *episode, f fault, p *process) {
		for range f.n {
			e.server.Mute(p.number)
			time.Sleep(f.length / 8)
		}
	}},
	{kind: "pause-server", strike: func(e *episode, f fault, _ *process) {
		e.server.Pause()
		time.Sleep(f.length)
		e.server.Resume()
	}},
	{kind: "restart", strike: func(e *episode, f fault, _ *process) {
		e.server.Stop()
		time.Sleep(f.length / 2)
		e.server.Start(false)
	}},
	{kind: "empty", class: history.DataLoss, strike: func(e *episode, f fault, _ *process) {
		e.server.Stop()
		time.Sleep(f.length / 2)
		e.server.Start(true)
	}},
	{kind: "free", class: history.ForceFree, strike: func(e *episode, f fault, _ *process) { e.server.Free(f.key) }},
	{kind: "forward", class: history.DataLoss, strike: func(e *episode, f fault, _ *process) { e.server.Jump(f.length) }},
	{kind: "back", class: history.ClockBack, strike: func(e *episode, f fault, _ *process) { e.server.Jump(-f.length) }},
	{kind: "kill-client", strike: func(e *episode, f fault, p *process) {
		e.mu.Lock()
		dead := p.killed
		p.killed = true
		e.mu.Unlock()
		if dead {
			return
		}
		p.path.Kill(f.n%2 == 0)
		go p.Abandon()
		time.Sleep(f.length / 4)
		e.spawn(f.process)
	}},
}

// direction returns one of the directions or both.
func (f fault) direction() vnet.Direction { return vnet.Direction(1 + f.n%3) }

// planned draws the faults of the episode. One of eight episodes has none, so that any failure
// in it is a violation.
func (e *episode) planned() (some []fault) {
	if e.seed%8 == 0 {
		return nil
	}
	for range 2 + e.rng.IntN(6) {
		some = append(some, e.draw())
	}
	// If rows are lost while the clock is behind, their tokens start again from lower ones, by
	// design (G3).
	if slices.ContainsFunc(some, func(f fault) bool { return f.class == history.ClockBack }) {
		some = slices.DeleteFunc(some, func(f fault) bool { return f.kind == "empty" && e.server.kind == Row })
	}
	return some
}

// draw draws one fault.
func (e *episode) draw() fault {
	f := faults[e.rng.IntN(len(faults))]
	if f.class == "" {
		f.class = history.Plain
	}
	f.process, f.n, f.key = e.rng.IntN(processes), 1+e.rng.IntN(6), e.keys[e.rng.IntN(len(e.keys))]
	f.at = time.Duration(e.rng.Int64N(int64(strikeUntil)))
	f.length = min(e.ttl/4+time.Duration(e.rng.Int64N(int64(3*e.ttl))), 1200*time.Millisecond)
	return f
}

// strike makes f happen and records the time.
func (e *episode) strike(f fault) {
	e.mu.Lock()
	p, at := e.now[f.process], len(e.faults)
	r := history.Fault{Kind: f.kind, Class: f.class, Proc: p.number, Begin: clock(), End: history.Never}
	if f.class == history.ForceFree {
		r.Key = f.key
	}
	e.faults = append(e.faults, r)
	e.mu.Unlock()
	f.strike(e, f, p)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults[at].End = clock()
}
