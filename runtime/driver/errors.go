package driver

import (
	"errors"
	"time"
)

// The errors of an engine. Package lock has these under the same names, and wraps them in its
// Error. Match with [errors.Is].
var (
	// ErrUnavailable says that the engine refused, could not be reached, or may grant nothing yet.
	ErrUnavailable = errors.New("engine unavailable")

	// ErrIndeterminate says that the outcome of an acquire is unknown.
	ErrIndeterminate = errors.New("outcome unknown")

	// ErrLost says that the lock was held and may no longer be.
	ErrLost = errors.New("lock lost")

	// ErrConflict says that something else is at the key: it is no lock of lockgen, or a lock
	// of another kind.
	ErrConflict = errors.New("key is in use by something else")

	// ErrInvalid says that a key, a policy or an option can't be valid. Nothing was sent.
	ErrInvalid = errors.New("invalid")

	// ErrDone says that the tick was completed before.
	ErrDone = errors.New("done already")

	// ErrClosed says that the Locker or the Backend is closed.
	ErrClosed = errors.New("locker closed")
)

// HeldError is returned by Backend.Acquire while another owner holds the key. Joined with
// ErrUnavailable it says that the engine does not answer, or grants nothing yet, and that waiters
// should continue to wait.
type HeldError struct {
	// RetryAfter is how long the holder's lease lasts if it is not renewed; 0 means unknown.
	RetryAfter time.Duration
	// Notified says that the acquisition has been notified of releases since before this attempt
	// was sent, so that no further attempt is needed after Subscribe.
	Notified bool
	// Holder is the ID of the key's holder, if the refusal names it: an owner ID, or what another
	// client has in its place.
	Holder string
	// Permits, for Kind Permits, is the smallest Mode.Permits of a holder that differs from
	// the acquisition's, or 0.
	Permits int
}

// Error names the holder of the key and says how long its lease lasts, if the engine said who it is.
func (e *HeldError) Error() string {
	switch {
	case e.Holder == "":
		return "held by another owner"
	case e.RetryAfter > 0:
		return "held by " + e.Holder + ", whose lease lasts " + e.RetryAfter.Round(time.Millisecond).String() + " unless it is renewed"
	}
	return "held by " + e.Holder
}
