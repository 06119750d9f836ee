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
	Exclusion  Oracle = iota // two are inside although each has cause to believe in its lease
	Stale                    // an expired holder's write is taken after a later holder has read or written
	LeftBehind               // a lock or another key stays too long, or a failed acquire holds
	Late                     // a call outlives its context by more than 100 ms
	ToldLate                 // a holder is told yes more than 1 ms after its lease ended
	Foreign                  // a release frees another owner's lock
	Liveness                 // a free key has a waiter for too long
	Polling                  // a waiter asks often although nothing happens
	WrongError               // an error says "taken" of a server that did not answer
	Leak                     // goroutines are left a minute after all was closed
	oracles
)

// Oracles are all of them.
func Oracles() (all []Oracle) {
	for o := range oracles {
		all = append(all, o)
	}
	return all
}

// String is the head of the oracle's column.
func (o Oracle) String() string {
	return [...]string{"exclusion", "stale write", "left behind", "late", "told late", "foreign release", "liveness", "polling", "wrong error", "leak"}[o]
}

const (
	tardy    = 100 * time.Millisecond  // how much longer than its context a call may last
	tellable = time.Millisecond        // how late a holder may hear of its loss
	waitable = 1600 * time.Millisecond // how much longer than a ttl a free key's waiter may wait
	orphaned = 250 * time.Millisecond  // how long a lock may stay that nobody was given, when nothing is wrong
	sampling = 25 * time.Millisecond
	unheard  = 100 * time.Millisecond // a server that is silent for so long has not answered
)

// Finding is one time that an oracle was broken.
type Finding struct {
	Oracle Oracle
	Key    string
	At     time.Duration // since the episode began
	Text   string
}

// String tells the finding to a person.
func (f Finding) String() string {
	return fmt.Sprintf("%.3f ms  %v %s: %s", float64(f.At)/float64(time.Millisecond), f.Oracle, f.Key, f.Text)
}

// find notes that an oracle was broken.
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
	since      time.Time // when its lease may have been asked for: by an earlier hold, which handed it on
	id         string    // the owner at the server when it returned; "" if that was another process or nobody
	done       chan struct{}

	// Under the episode's mutex.
	said     time.Time // when the library last said that it is held
	denied   bool      // it said otherwise since
	asking   bool      // a Check is under way
	leaving  bool      // its release has begun
	freed    time.Time // when its release returned
	gone     time.Time // when its lease was first seen to be over
	exposed  bool      // it was told late
	excluded bool      // it was inside with another
}

// began notes a call.
func (e *episode) began(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

// acquired makes a hold of a call that succeeded.
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

// chain returns when the first of the holds was asked for of which each may have got its
// lease from the one before it: in one process, and asked for before that one ended. The
// episode is locked.
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

// failed notes a call that failed.
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
		e.find(WrongError, c.key, "process %d heard nothing of the server for %v, and is told: %v", p.number, waited, err)
	}
}

// alone reports whether c's process had no other use of the key while c lasted: the
// error may be about that.
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

// tardiness looks whether an acquire has outlived its context, or its wait.
func (e *episode) tardiness(c *call) {
	if due, ok := c.due(); ok {
		c.process.returned("acquire", c.key, due)
	}
}

// returned looks whether a call that ends now, and was due then, is late.
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

// excused reports whether what holds of key at some moment of [from, to] had was taken
// away by what no lock can prevent.
func (e *episode) excused(key string, from, to time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.faults, func(f *fault) bool {
		return (f.class == history.DataLoss || f.class == history.ForceFree && f.key == key) && f.inForce(from, to)
	})
}

// clockWentBack reports whether the server's clock was set back: all lasts longer.
func (e *episode) clockWentBack() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.faults, func(f *fault) bool { return f.class == history.ClockBack })
}

// asks notes that a Check begins.
func (e *episode) asks(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.asking = true
}

// checked notes an answer of Held.Check, and reports whether it was yes.
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
			e.log("hold %d is told: %v", h.number, err)
		}
		return err == nil
	}
	e.outlived(h, "Check says yes")
	e.exclusive(h)
	return true
}

// outlived looks whether h, which has just been told that it holds, has lost its lease
// a while ago.
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
