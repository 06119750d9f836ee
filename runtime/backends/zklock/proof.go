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
	touches []touch        // oldest first
	since   driver.Instant // what is proved: the leader has heard of the session later than this
	sinceAt time.Time      // the same, to compare
}

// touch is a request that was answered.
type touch struct {
	sent driver.Instant
	at   time.Time // of sent
	ripe time.Time // a write sent from then on proves it
}

// opened notes that the leader took note of the session, asked for at.
func (p *proof) opened(sent driver.Instant, at time.Time) {
	p.touches = []touch{{sent: sent, at: at, ripe: at}}
}

// answered notes the answer to a request. It returns whether more is proved
// than before.
func (p *proof) answered(sent driver.Instant, at time.Time, wrote bool) (more bool) {
	if wrote {
		more = p.prove(at)
	}
	// A few will do, spread over the time that it takes one to ripen.
	if n := len(p.touches); n == 0 || at.Sub(p.touches[n-1].at) >= p.tick/8 {
		p.touches = append(p.touches, touch{sent: sent, at: at, ripe: time.Now().Add(p.tick)})
	}
	return more
}

func (p *proof) prove(wrote time.Time) (more bool) {
	for len(p.touches) > 0 && !p.touches[0].ripe.After(wrote) {
		if t := p.touches[0]; t.at.After(p.sinceAt) {
			p.since, p.sinceAt, more = t.sent, t.at, true
		}
		p.touches = p.touches[1:]
	}
	return more
}

// earlier returns the earlier of two instants.
func earlier(a, b driver.Instant) driver.Instant {
	if a.Left() < b.Left() {
		return a
	}
	return b
}
