// Package vnet is a network inside one bubble of testing/synctest. Messages take
// virtual time. A simulation delays, holds back and loses them and cuts connections. All
// random choices come from one seed.
//
// A [Path] leads from one process to a server. A [Flow] is one connection on it. Messages
// of one flow arrive in order, those of different flows in any order. [Path.Dial] returns
// a net.Conn over a flow.
package vnet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Direction is one of the two directions of messages, or both.
type Direction int

// The directions.
const (
	Requests Direction = 1 << iota // from the process to the server
	Replies
	Both = Requests | Replies
)

// index returns 0 for requests and 1 for replies.
func (d Direction) index() int { return int(d) - 1 }

// Path is the network between one process and one server.
type Path struct {
	latencyLeast time.Duration
	number       int

	mu      sync.Mutex // guards the rest
	rng     *rand.Rand
	flows   []*Flow
	delays  [2]time.Duration
	holes   [2]bool
	paused  bool
	refused bool
	dead    bool
	lost    []*Flow // flows of a dead host, of whose end the server was not notified
}

// NewPath returns a Path with a number. Its random choices depend on seed and number. A
// message takes between one and two times latency. One in fifty takes longer, by up to four
// times latency.
func NewPath(latency time.Duration, seed uint64, number int) *Path {
	return &Path{latencyLeast: latency, number: number, rng: rand.New(rand.NewPCG(seed, uint64(number)))}
}

// Flow is a sequence of messages in each direction, as on one connection.
type Flow struct {
	path *Path
	cut  func(tell bool) // ends the connection that the flow carries

	// Guarded by the path's mutex:
	last  [2]time.Time // when the last message arrives
	sent  [2][]func()  // messages on their way, in order, since after a stall timers fire in any order
	held  [2][]func()  // messages that a hole holds back
	over  [2]bool      // no more messages are delivered
	muted bool         // replies are lost
}

// NewFlow begins a flow. When a fault ends the flow, cut is called without a mutex held: it must
// notify the process at once, and the server only if tell is set.
func (p *Path) NewFlow(cut func(tell bool)) *Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Flow{path: p, cut: cut}
	p.flows = append(p.flows, f)
	return f
}

// On reports whether f belongs to the path with this number.
func (f *Flow) On(number int) bool { return f.path.number == number }

// Send sends a message. When the message arrives, deliver is called in a new goroutine, unless
// the message is lost. Send does not wait.
func (f *Flow) Send(dir Direction, deliver func()) {
	p, i := f.path, dir.index()
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.over[i] || dir == Replies && f.muted || p.dead && dir == Requests {
		return
	}
	now := time.Now()
	at := now.Add(p.latency() + p.delays[i])
	if !at.After(f.last[i]) {
		at = f.last[i].Add(time.Nanosecond)
	}
	f.last[i] = at
	f.sent[i] = append(f.sent[i], deliver)
	time.AfterFunc(at.Sub(now), func() { f.arrive(i) })
}

// latency draws how long a message takes. The path's mutex must be held.
func (p *Path) latency() time.Duration {
	least := p.latencyLeast
	if least == 0 {
		return 0
	}
	d := least + time.Duration(p.rng.Int64N(int64(least)))
	if p.rng.IntN(50) == 0 {
		d += time.Duration(p.rng.Int64N(4 * int64(least)))
	}
	return d
}

// arrive delivers the next message, or lets it wait for the end of a hole.
func (f *Flow) arrive(i int) {
	p := f.path
	p.mu.Lock()
	deliver := f.sent[i][0]
	f.sent[i] = f.sent[i][1:]
	if f.over[i] {
		p.mu.Unlock()
		return
	}
	if p.holes[i] || p.paused || len(f.held[i]) > 0 {
		f.held[i] = append(f.held[i], deliver)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	deliver()
}

// Mute drops all replies of the flow from now on. Its process receives nothing more, but
// the connection stays open.
func (f *Flow) Mute() {
	f.path.mu.Lock()
	defer f.path.mu.Unlock()
	f.muted = true
}

// Reset ends the flow at once, and both ends are notified. Replies on their way are lost.
// Requests on their way are all lost or all arrive.
func (f *Flow) Reset() {
	f.path.mu.Lock()
	lost := f.path.rng.IntN(2) == 0
	f.path.mu.Unlock()
	f.end(lost, lost)
	if !lost {
		f.Send(Requests, func() { f.cut(true) })
	}
}

// end ends the flow at its process's side. Unless lost is set, requests on their way
// still arrive, and the end must arrive after them.
func (f *Flow) end(lost, tell bool) {
	f.path.mu.Lock()
	f.over = [2]bool{f.over[0] || lost, true}
	f.path.mu.Unlock()
	f.cut(tell)
}

// Delay makes messages in dir take d longer from now on.
func (p *Path) Delay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.delays {
		if dir&(1<<i) != 0 {
			p.delays[i] = d
		}
	}
}

// Hole holds back all messages in dir until Heal, as TCP does in a partition.
func (p *Path) Hole(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.holes {
		p.holes[i] = p.holes[i] || dir&(1<<i) != 0
	}
}

// Pause holds back messages to and from a process that does not run, also those on their way.
func (p *Path) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
}

// Resume ends Pause.
func (p *Path) Resume() {
	p.mu.Lock()
	p.paused = false
	p.release()
}

// Heal ends all faults except Kill and Pause.
func (p *Path) Heal() {
	p.mu.Lock()
	p.delays, p.holes, p.refused = [2]time.Duration{}, [2]bool{}, false
	p.release()
}

// release delivers the messages that were held back, in order. It unlocks the path's mutex.
func (p *Path) release() {
	var due []func()
	for _, f := range p.flows {
		for i := range f.held {
			if p.holes[i] || p.paused {
				continue
			}
			due = append(due, f.held[i]...)
			f.held[i] = nil
		}
	}
	p.mu.Unlock()
	for _, deliver := range due {
		deliver()
	}
}

// Refuse makes new connections fail, until Heal.
func (p *Path) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = true
}

// Reset cuts all connections. See [Flow.Reset].
func (p *Path) Reset() {
	p.mu.Lock()
	flows := slices.Clone(p.flows)
	p.mu.Unlock()
	for _, f := range flows {
		f.Reset()
	}
}

// Kill ends the path for good, as the death of its process does. If the host dies
// too, the server is not notified and keeps its end of the connections.
func (p *Path) Kill(host bool) {
	if !host {
		p.hangUp()
	}
	p.mu.Lock()
	p.dead, p.paused = true, false
	flows := slices.Clone(p.flows)
	if host {
		p.lost = flows
	}
	p.mu.Unlock()
	for _, f := range flows {
		f.end(host, false)
	}
}

// hangUp ends all connections after the data that was sent on them.
func (p *Path) hangUp() {
	p.mu.Lock()
	flows := slices.Clone(p.flows)
	p.mu.Unlock()
	for _, f := range flows {
		f.Send(Requests, func() { f.cut(true) })
	}
}

// Forget makes the server give up the connections of a host that has died, as keep-alive
// packets do after a while.
func (p *Path) Forget() {
	p.mu.Lock()
	lost := p.lost
	p.lost = nil
	p.mu.Unlock()
	for _, f := range lost {
		f.cut(true)
	}
}

// isRefused reports whether new connections are refused.
func (p *Path) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused || p.dead
}

func (p *Path) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}
