package lock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Observer hears what a [Locker] does, for metrics, traces and logs. Observe is
// called on the goroutines that lock and renew, many at once: it must return
// soon, must not call the Locker and must not panic. ctx is the context of the call
// that locks, for its values such as a trace; it may have ended. What belongs to no
// call has [context.Background].
type Observer interface {
	// Observe hears of one event.
	Observe(ctx context.Context, e Event)
}

// HoldObserver is an [Observer] that gives the guarded method a context of its own, for
// example one with the span of the hold.
type HoldObserver interface {
	Observer

	// BeginHold returns the context that the method of a hold runs under. It must be derived
	// from ctx. BeginHold is called after the hold's Acquired or HandedOff, and e is that event.
	// It is not called for a re-entry, nor when [Cond.Wait] takes its lock again: the context
	// stays. Renewed, RenewalFailed and at last Lost or Released come with the returned context,
	// or with [context.Background] if they come before BeginHold has returned. When one call
	// takes several locks, ctx is the context that BeginHold returned for the lock before, and
	// the events of all locks come with the last context.
	BeginHold(ctx context.Context, e Event) context.Context
}

// Event is one thing that happened to one lock.
type Event struct {
	Kind EventKind // what happened

	// Policy says which lock it was: its Method and Pattern are few, and fit
	// for the labels of a metric. It must not be written to.
	Policy *Policy

	// Key is the lock's key. There may be very many, so it is fit for a log
	// line and not for a label.
	Key string

	Token    uint64        // the fencing token; 0 where nothing was held
	Duration time.Duration // of what, the kind says
	Err      error         // why, if something failed
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	// Acquired: a hold began on a lease of its own. Duration is from the call to
	// the hold.
	Acquired EventKind = iota + 1
	// Waiting: a call begins to queue for the lock, in this process or at the
	// engine. Waited or Rejected follows.
	Waiting
	// Waited: a call that got the lock had to queue for it. Duration is from the
	// call. Acquired or HandedOff follows.
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
	// will be tried again. Duration is how long that took. It is told once for each
	// lease, and once more only after a renewal has succeeded.
	RenewalFailed
	// Lost: a lock was lost while its method ran, or just before, as Err says.
	// Duration is how long it had been held.
	Lost
	// Released: a hold ended. Duration is how long it had been held. Err is not
	// nil if the engine did not confirm the release, which then goes on in the
	// background.
	Released
	// OutageBegan: no lease at the backend that Policy.Backend names could be
	// renewed, as Err says. It is told once for each outage. Only Policy.Backend and
	// Err are set.
	OutageBegan
	// OutageEnded: a lease at that backend was renewed or granted again, the engine answered
	// that such a lease is lost, or the Locker was closed. Duration is how long the outage
	// lasted.
	OutageEnded
	// Unclosed: the garbage collector has found a Locker that nobody closed, which leaves
	// goroutines and connections of its backends behind. Only Err is set.
	Unclosed
	// OrderCycle: locks are taken in orders that contradict each other: pattern b inside of a,
	// and elsewhere a inside of b. It does not mean that a call has waited. Err tells the
	// orders and where each was seen first. It is told once, also if a third lock around both
	// keeps the calls apart. See Snapshot.Orders. The orders of other processes count if both
	// locks are at one Backend that is a driver.Noter, as those of this module are; of these,
	// only pairs are found. The process that nests them second reports it, soon after its
	// call, and again after a week.
	OrderCycle
	// PermitsDiffer: a call did not get its permits at once, and a holder's policy has another
	// number of permits, for example while a deployment changes Policy.Permits. Until that
	// holder has gone the smaller number counts. Err tells both.
	PermitsDiffer
)

var eventNames = [...]string{
	Acquired:      "acquired",
	Waiting:       "waiting",
	Waited:        "waited",
	HandedOff:     "handed off",
	Reentered:     "re-entered",
	Rejected:      "rejected",
	Renewed:       "renewed",
	RenewalFailed: "renewal failed",
	Lost:          "lost",
	Released:      "released",
	OutageBegan:   "outage began",
	OutageEnded:   "outage ended",
	Unclosed:      "unclosed",
	OrderCycle:    "order cycle",
	PermitsDiffer: "permits differ",
}

// String returns the kind as it stands in logs and metrics: "acquired",
// "renewal failed".
func (k EventKind) String() string {
	if k < Acquired || int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// NewLogObserver returns an [Observer] that writes to logger: Lost, OutageBegan, OutageEnded,
// Unclosed, OrderCycle, PermitsDiffer and a Released with an error at the level Warn, Rejected
// at Info, all else at Debug. A line has what is known of the event: method, pattern, backend,
// key, duration, token and error.
func NewLogObserver(logger *slog.Logger) Observer { return logObserver{logger} }

type logObserver struct{ logger *slog.Logger }

func (o logObserver) Observe(ctx context.Context, e Event) {
	level := e.level()
	if !o.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", e.Policy.Method),
		slog.String("pattern", e.Policy.Pattern),
		slog.String("backend", e.Policy.Backend),
		slog.String("key", e.Key),
		slog.Duration("duration", e.Duration),
		slog.Uint64("token", e.Token),
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool {
		value := a.Value.Any()
		return value == "" || value == time.Duration(0) || value == uint64(0)
	})
	what := e.Kind.String()
	if e.Kind == Released && e.Err != nil {
		what = "release not confirmed"
	}
	o.logger.LogAttrs(ctx, level, "lock "+what, attrs...)
}

func (e Event) level() slog.Level {
	switch e.Kind {
	case Lost, OutageBegan, OutageEnded, Unclosed, OrderCycle, PermitsDiffer:
		return slog.LevelWarn
	case Rejected:
		return slog.LevelInfo
	case Released:
		if e.Err != nil {
			return slog.LevelWarn
		}
	}
	return slog.LevelDebug
}

// nowIfObserved returns the time, for the Duration of an Event, or zero without an Observer.
func (l *Locker) nowIfObserved() time.Time {
	if l == nil || l.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// reject returns the error of an acquire on key that failed with err.
func (l *Locker) reject(ctx context.Context, p *Policy, key string, called time.Time, err error) error {
	err = &Error{Op: "acquire", Method: p.Method, Key: key, Err: whileHolding(ctx, err)}
	if l != nil && l.observer != nil {
		l.observer.Observe(ctx, Event{Kind: Rejected, Policy: p, Key: key, Duration: time.Since(called), Err: err})
	}
	return err
}

// observeHold tells the Observer that h began, in a call made at called.
func (l *Locker) observeHold(ctx context.Context, h *hold, called time.Time) {
	if h.waited {
		l.observeEntry(ctx, Waited, h.policy, h, called)
	}
	l.observeEntry(ctx, h.beganBy(), h.policy, h, called)
}

// beganBy is the kind of event that h began with.
func (h *hold) beganBy() EventKind {
	if h.handedOff {
		return HandedOff
	}
	return Acquired
}

// methodCaller returns what the context of h's method is derived from: ctx, which is the
// caller's, or what a HoldObserver made of it.
func (l *Locker) methodCaller(ctx context.Context, h *hold) context.Context {
	o, ok := l.observer.(HoldObserver)
	if !ok {
		return ctx
	}
	return o.BeginHold(ctx, Event{Kind: h.beganBy(), Policy: h.policy, Key: h.entry.id.key, Token: h.token})
}

// observeEntry tells the Observer how a call under p, made at called, got h.
func (l *Locker) observeEntry(ctx context.Context, kind EventKind, p *Policy, h *hold, called time.Time) {
	if l.observer == nil {
		return
	}
	l.observer.Observe(ctx, Event{Kind: kind, Policy: p, Key: h.entry.id.key, Token: h.token, Duration: time.Since(called)})
}

func (l *Locker) observeOutage(kind EventKind, backend string, d time.Duration, err error) {
	if l.observer != nil {
		l.observer.Observe(context.Background(), Event{Kind: kind, Policy: &Policy{Backend: backend}, Duration: d, Err: err})
	}
}

// observeWaiting notes that the call under ctx, which h is for, waits for key.
// It tells the Observer once.
func (h *hold) observeWaiting(ctx context.Context, key string) {
	if h.waited {
		return
	}
	h.waited = true
	if o := h.locker.observer; o != nil {
		o.Observe(ctx, Event{Kind: Waiting, Policy: h.policy, Key: key})
	}
}

// observePermits tells the Observer if err, the refusal of h's first attempt, says that a
// holder has another number of permits.
func (h *hold) observePermits(ctx context.Context, key string, err error) {
	if h.policy.Permits == 0 || h.locker.observer == nil {
		return
	}
	if theirs := heldError(err).Permits; theirs != 0 {
		h.locker.observer.Observe(ctx, Event{Kind: PermitsDiffer, Policy: h.policy, Key: key,
			Err: fmt.Errorf("the policy says permits=%d, and a holder goes by permits=%d: the smaller counts until it has gone", h.policy.Permits, theirs)})
	}
}

// observe tells the Observer what became of h. d is the Duration that kind has.
func (h *hold) observe(kind EventKind, d time.Duration, err error) {
	if h.hidesFromObserver(kind) {
		return
	}
	if o := h.locker.observer; o != nil {
		o.Observe(h.caller(), Event{Kind: kind, Policy: h.policy, Key: h.entry.id.key, Token: h.token, Duration: d, Err: err})
	}
}
