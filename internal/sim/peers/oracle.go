package peers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// Oracle is one thing that a lock must not do.
type Oracle int

// The oracles, in the order of the report.
const (
	Exclusion  Oracle = iota // two holders are inside, and each has reason to believe that its lease lasts
	Stale                    // an expired holder's write is accepted after a later holder has read or written
	LeftBehind               // a lock or another key stays too long, or a failed acquire has the lock
	Late                     // a call outlives its context by more than 100 ms
	ToldLate                 // the library says that the lock is held more than 1 ms after the lease ended
	Foreign                  // a release frees another owner's lock
	Liveness                 // a process waits for a free key for too long
	Polling                  // a waiter sends many requests although nothing happens
	WrongError               // an error says "taken" although the server did not answer
	Leak                     // goroutines are left a minute after everything was closed
	oracles
)

// Oracles returns all oracles.
func Oracles() (all []Oracle) {
	for o := range oracles {
		all = append(all, o)
	}
	return all
}

// String returns the head of the oracle's column.
func (o Oracle) String() string {
	return [...]string{"exclusion", "stale write", "left behind", "late", "told late", "foreign release", "liveness", "polling", "wrong error", "leak"}[o]
}

const (
	tardy    = 100 * time.Millisecond  // how much longer than its context a call may last
	tellable = time.Millisecond        // how late a holder may learn of its loss
	waitable = 1600 * time.Millisecond // how much longer than a ttl a free key's waiter may wait
	orphaned = 250 * time.Millisecond  // how long a lock that no caller got may stay when nothing is wrong
	sampling = 25 * time.Millisecond
	unheard  = 100 * time.Millisecond // a server that sends nothing for this long has not answered
)

// Finding is one violation that an oracle has found.
type Finding struct {
	Oracle Oracle
	Key    string
	At     time.Duration // since the episode began
	Text   string
}

// String formats the finding for a person.
func (f Finding) String() string {
	return fmt.Sprintf("%.3f ms  %v %s: %s", float64(f.At)/float64(time.Millisecond), f.Oracle, f.Key, f.Text)
}

// find records a violation.
func (e *episode) find(o Oracle, key, format string, args ...any) {
	f := Finding{Oracle: o, Key: key, At: time.Since(e.begin), Text: fmt.Sprintf(format, args...)}
	e.log("FOUND %v %s: %s", o, key, f.Text)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.found = append(e.found, f)
}

// hold is one lock that was acquired.
type hold struct {
	number     int
	process    *process
	key        string
	held       Held
	begin, got time.Time // the call of Acquire, and its return
	since      time.Time // when its lease may have been asked for, perhaps by an earlier hold that handed it on
	id         string    // the owner at the server when Acquire returned; "" if that was not this process
	done       chan struct{}

	// Guarded by the episode's mutex:
	said     time.Time // when the library last said that the lock is held
	denied   bool      // since then the library said that it is not
	asking   bool      // a Check is running
	leaving  bool      // its release has begun
	freed    time.Time // when its release returned
	gone     time.Time // when its lease was first found to be over
	exposed  bool      // a ToldLate was reported
	excluded bool      // an Exclusion was reported
}

// began records a call.
func (e *episode) began(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

// acquired records the hold of a call that succeeded.
func (p *process) acquired(c *call, held Held) *hold {
	h := &hold{process: p, key: c.key, held: held, begin: c.begin, got: time.Now(), done: make(chan struct{})}
	h.said = h.got
	at := p.server.look(p.peer.ServerKey(h.key))
	if at.owner != "" && p.server.sender(at.owner) == p.number {
		h.id = at.owner
	}
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	e := p.episode
	e.mu.Lock()
	c.end = h.got
	h.number = len(e.holds) + 1
	h.since = e.chain(h)
	if !killed {
		e.holds = append(e.holds, h)
	}
	e.mu.Unlock()
	token, _ := held.Token()
	e.log("hold %d: process %d has %s, token %d, server %q for %v", h.number, p.number, h.key, token, h.id, at.left)
	e.tardiness(c)
	go e.watch(h)
	return h
}

// chain returns when the lease of h may have been asked for. A hold may have its lease from an earlier hold
// of the same process if it was asked for before that one ended; so chain follows such holds back to the
// first. The episode's mutex must be held.
func (e *episode) chain(h *hold) time.Time {
	for _, o := range slices.Backward(e.holds) {
		if o.process == h.process && o.key == h.key {
			if o.freed.IsZero() || !o.freed.Before(h.begin) {
				return earlier(h.begin, o.since)
			}
			break
		}
	}
	return h.begin
}

// failed records a call that failed.
func (p *process) failed(c *call, err error) {
	e := p.episode
	e.mu.Lock()
	c.end = time.Now()
	e.mu.Unlock()
	e.log("process %d does not get %s: %v", p.number, c.key, err)
	if p.isKilled() {
		return
	}
	e.tardiness(c)
	waited := c.end.Sub(c.begin)
	if waited >= unheard && p.peer.SaysTaken(err) && p.link.silentSince(c.begin) && e.struck(c.begin, c.end) && e.alone(c) {
		e.find(WrongError, c.key, "process %d got no answer from the server for %v, but its error is: %v", p.number, waited, err)
	}
}

// alone reports whether c's process had no other hold or call of the key during c, which the error could be
// about.
func (e *episode) alone(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.calls {
		if o != c && o.process == c.process && o.key == c.key && (o.end.IsZero() || !o.end.Before(c.begin)) {
			return false
		}
	}
	return !slices.ContainsFunc(e.holds, func(h *hold) bool {
		return h.process == c.process && h.key == c.key && (h.freed.IsZero() || !h.freed.Before(c.begin))
	})
}

// tardiness checks whether an acquire has outlived its context or its wait.
func (e *episode) tardiness(c *call) {
	if due, ok := c.due(); ok {
		c.process.returned("acquire", c.key, due)
	}
}

// returned checks whether a call that returns now, and should have returned at due, is late.
func (p *process) returned(what, key string, due time.Time) {
	now := time.Now()
	if now.Sub(due) > tardy && !p.isKilled() && !p.wasPaused(due, now) {
		p.find(Late, key, "process %d: %s returned %v after its context had ended", p.number, what, now.Sub(due))
	}
}

// wasPaused reports whether p did not run at some moment of [from, to].
func (p *process) wasPaused(from, to time.Time) bool {
	p.episode.mu.Lock()
	defer p.episode.mu.Unlock()
	return slices.ContainsFunc(p.faults, func(f *fault) bool {
		return (f.process == allProcesses || f.process == p.number) && f.inForce(from, to)
	})
}

// struck reports whether any fault was in force at some moment of [from, to].
func (e *episode) struck(from, to time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.faults, func(f *fault) bool { return f.inForce(from, to) })
}

// excused reports whether a fault that no lock can withstand ended the holds of key at some moment of
// [from, to].
func (e *episode) excused(key string, from, to time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.faults, func(f *fault) bool {
		return (f.class == history.DataLoss || f.class == history.ForceFree && f.key == key) && f.inForce(from, to)
	})
}

// clockWentBack reports whether the server's clock was set back, which makes expiries later.
func (e *episode) clockWentBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.faults, func(f *fault) bool { return f.class == history.ClockBack })
}

// asks records that a Check begins.
func (e *episode) asks(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.asking = true
}

// checked records the result of Held.Check, and reports whether the lock is held.
func (p *process) checked(h *hold, err error) bool {
	e, now := p.episode, time.Now()
	e.mu.Lock()
	h.denied, h.asking = err != nil, false
	if err == nil {
		h.said = now
	}
	e.mu.Unlock()
	if err != nil || p.isKilled() {
		if !errors.Is(err, ErrUnknown) {
			e.log("Check of hold %d returns: %v", h.number, err)
		}
		return err == nil
	}
	e.outlived(h, "Check succeeds")
	e.exclusive(h)
	return true
}

// outlived checks whether h lost its lease longer ago than tellable, although the library has just said that
// the lock is held.
func (e *episode) outlived(h *hold, told string) {
	now := time.Now()
	lost := e.server.look(e.peer.ServerKey(h.key)).owner != h.id || h.id == ""
	e.mu.Lock()
	if lost && h.gone.IsZero() {
		h.gone = now
	}
	late := lost && now.Sub(h.gone) > tellable && !h.exposed
	since := now.Sub(h.gone)
	e.mu.Unlock()
	if !late || e.excused(h.key, h.since, now) || h.process.isKilled() {
		return
	}
	e.mu.Lock()
	h.exposed = true
	e.mu.Unlock()
	e.find(ToldLate, h.key, "hold %d of process %d: %s %v after its lease ended", h.number, h.process.number, told, since)
}
