package lock

import (
	"context"
	"log/slog"
	"time"
)

// Observer hears what a [Locker] does, for metrics, traces and logs. Observe is
// called on the goroutines that lock and renew, many at once: it must return
// soon and must not call the Locker.
type Observer interface {
	Observe(Event)
}

// Event is one thing that happened to one lock.
type Event struct {
	Kind EventKind

	// Policy says which lock it was: its Method and Pattern are few, and fit
	// for the labels of a metric. It must not be written to.
	Policy *Policy

	// Key is the lock's own key. There is one for each voucher, so it is fit
	// for a log line and not for a label.
	Key string

	Token    uint64        // the fencing token; 0 where nothing was held
	Duration time.Duration // what it counts is said at the kind
	Err      error         // why, where something failed
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	// Acquired: a hold began on a lease of its own. Duration is from the call to
	// the hold.
	Acquired EventKind = iota + 1
	// Waited: a call that got the lock had to queue for it, in this process or
	// at the engine. Duration is from the call. Acquired or HandedOff follows.
	Waited
	// HandedOff: a hold began on the lease of the one before it, without a
	// command to the engine. Duration is from the call to the hold.
	HandedOff
	// Reentered: a nested call entered a hold of its chain. Duration is how
	// long it waited for a sibling to leave.
	Reentered
	// Rejected: an acquire failed, as Err says. Duration is from the call.
	Rejected
	// Renewed: the engine extended a lease. Duration is how long its answer took.
	Renewed
	// RenewalFailed: a renewal had no answer or was refused, as Err says; it
	// will be tried again. Duration is how long that took.
	RenewalFailed
	// Lost: a lock was lost while its method ran, or just before, as Err says.
	// Duration is how long it had been held.
	Lost
	// Released: a hold ended. Duration is how long it had been held. Err is not
	// nil if the engine did not confirm the release, which then goes on in the
	// background.
	Released
)

// String returns the kind as it stands in logs and metrics: "acquired",
// "renewal failed".
func (k EventKind) String() string {
	switch k {
	case Acquired:
		return "acquired"
	case Waited:
		return "waited"
	case HandedOff:
		return "handed off"
	case Reentered:
		return "re-entered"
	case Rejected:
		return "rejected"
	case Renewed:
		return "renewed"
	case RenewalFailed:
		return "renewal failed"
	case Lost:
		return "lost"
	case Released:
		return "released"
	}
	return "unknown"
}

// NewLogObserver returns an [Observer] that writes to logger: what is lost or
// goes on in the background as a warning, what was rejected as information,
// all else for debugging.
func NewLogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) Observe(e Event) {
	ctx := context.Background()
	level := e.level()
	if !o.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", e.Policy.Method),
		slog.String("pattern", e.Policy.Pattern),
		slog.String("key", e.Key),
		slog.Duration("duration", e.Duration),
	}
	if e.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", e.Token))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	o.logger.LogAttrs(ctx, level, "lock "+e.Kind.String(), attrs...)
}

func (e Event) level() slog.Level {
	switch {
	case e.Kind == Lost, e.Kind == RenewalFailed, e.Kind == Released && e.Err != nil:
		return slog.LevelWarn
	case e.Kind == Rejected:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// observedSince returns the time, for a Duration, if anybody hears of it.
func (l *Locker) observedSince() time.Time {
	if l == nil || l.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// reject returns the error of an acquire on key that failed with err.
func (l *Locker) reject(p *Policy, key string, called time.Time, err error) error {
	err = &Error{Op: "acquire", Method: p.Method, Key: key, Err: err}
	if l != nil && l.observer != nil {
		l.observer.Observe(Event{Kind: Rejected, Policy: p, Key: key, Duration: time.Since(called), Err: err})
	}
	return err
}

// observeHold says that h began, in a call made at called. Should the Observer
// panic, the call ends without a Hold, and nobody else would give h back.
func (l *Locker) observeHold(h *hold, called time.Time) {
	if l.observer == nil {
		return
	}
	heard := false
	defer func() {
		if !heard {
			_ = l.pass(ended, h, time.Now())
			l.leave()
		}
	}()
	if h.waited {
		l.observeEntry(Waited, h.policy, h, called)
	}
	kind := Acquired
	if h.handed {
		kind = HandedOff
	}
	l.observeEntry(kind, h.policy, h, called)
	heard = true
}

// observeReentry is observeHold for a re-entry.
func (l *Locker) observeReentry(held *Hold, p *Policy, called time.Time) {
	if l.observer == nil {
		return
	}
	heard := false
	defer func() {
		if !heard {
			held.Release(nil)
		}
	}()
	l.observeEntry(Reentered, p, held.frame.hold, called)
	heard = true
}

func (l *Locker) observeEntry(kind EventKind, p *Policy, h *hold, called time.Time) {
	l.observer.Observe(Event{Kind: kind, Policy: p, Key: h.entry.id.key, Token: h.token, Duration: time.Since(called)})
}

// observe says what came of h; d is what the kind counts.
func (h *hold) observe(kind EventKind, d time.Duration, err error) {
	if o := h.locker.observer; o != nil {
		o.Observe(Event{Kind: kind, Policy: h.policy, Key: h.entry.id.key, Token: h.token, Duration: d, Err: err})
	}
}
