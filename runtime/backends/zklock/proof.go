package zklock

import (
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// proof reckons until when the leader can't end a session, from what was
// answered and when that was sent.
//
// The leader ends a session when it has not heard of it for the session's
// timeout. It hears of it by itself only when the session is made or comes over
// to another server (both ask the leader). Whatever else a client sends, its
// server keeps in mind and tells the leader with its answer to the leader's
// next ping, twice a tick. So an answer proves nothing yet, be it to a ping or
// to a read, which the server gives without the leader. But the server and the
// leader talk over one connection, in order: when a write is answered that was
// sent a tick after some earlier request was, then the leader has heard of that
// earlier one. And because a majority has taken the write, a leader elected in
// the meantime began later still, and gives every session its whole timeout
// anew. (sync is no such proof: a leader that was deposed without noticing
// answers it.) Thus the deadline counts from before the earlier one was sent:
// from the write, less a tick and what lies between.
type proof struct {
	tick    time.Duration
	timeout time.Duration // of the session, as the servers granted it
	begun   bool          // the leader has heard of the session at all
	touches []touch       // oldest first
}

// touch is a request that was answered.
type touch struct {
	sent driver.Instant
	at   time.Time // of sent
	ripe time.Time // a write sent from then on proves it
}

// opened notes that the leader took note of the session, asked for at sent.
func (p *proof) opened(sent driver.Instant) {
	p.begun, p.touches = true, []touch{{sent: sent}}
}

// answered notes the answer to a request that was sent at. If that proves anything,
// the leader has heard of the session later than since.
func (p *proof) answered(sent driver.Instant, at time.Time, wrote bool) (since driver.Instant, more bool) {
	for wrote && len(p.touches) > 0 && !p.touches[0].ripe.After(at) {
		since, more = p.touches[0].sent, true
		p.touches = p.touches[1:]
	}
	// A few will do, spread over the time that it takes one to ripen.
	if n := len(p.touches); n == 0 || at.Sub(p.touches[n-1].at) >= p.tick/8 {
		p.touches = append(p.touches, touch{sent: sent, at: at, ripe: time.Now().Add(p.tick)})
	}
	return since, more
}
