package lock

import (
	"errors"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What is known when a call fails. Match with [errors.Is].
var (
	// ErrNotAcquired says that the wait was over, or the context ended, before
	// this call's turn came: another owner held the key, or (so it is no proof of
	// one) another goroutine of this Locker had asked for it and the engine had
	// not answered yet. Or the grant took longer than its lease lasts. The method
	// did not run.
	ErrNotAcquired = errors.New("not acquired")

	// ErrUnavailable says that the engine refused or could not be reached.
	// The lock is not held and the method did not run.
	ErrUnavailable = driver.ErrUnavailable

	// ErrIndeterminate says that the outcome of an acquire is unknown. The
	// method did not run, and the acquire is being undone in the background.
	ErrIndeterminate = driver.ErrIndeterminate

	// ErrLost says that the lock was held and may no longer be. It is also the
	// cause of the context that the method runs under.
	ErrLost = driver.ErrLost

	// ErrDeadlock says that this call chain holds the key already, or asks for
	// an upgrade from read to write: waiting would never end.
	ErrDeadlock = errors.New("deadlock with the caller's own lock")

	// ErrConflict says that something that is no lock of ours lives at the key.
	ErrConflict = driver.ErrConflict

	// ErrInvalid says that a key or policy cannot be right. Nothing was sent.
	ErrInvalid = driver.ErrInvalid

	// ErrClosed says that the Locker is closed.
	ErrClosed = driver.ErrClosed
)

// Error says where one of the sentinels arose. It wraps the sentinel and,
// where there is one, the engine's or the context's own error.
type Error struct {
	Op     string // "acquire", "hold", "check", "release", "key", "close", "ping"
	Method string // the locked method, "Service.Buy"; empty when locked by hand
	Key    string // the key; its pattern where the key itself is what failed
	Err    error
}

// Error returns one line: what was tried, on which key, for which method, and why it failed.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lock: ")
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	if e.Method != "" {
		b.WriteString(" (" + e.Method + ")")
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap returns what the error wraps.
func (e *Error) Unwrap() error { return e.Err }

// because joins a sentinel and its cause on one line, where errors.Join would
// print two. A cause that already says kind is returned as it is.
func because(kind, cause error) error {
	if cause == nil {
		return kind
	}
	if errors.Is(cause, kind) {
		return cause
	}
	return &reason{kind: kind, cause: cause}
}

type reason struct{ kind, cause error }

func (r *reason) Error() string   { return r.kind.Error() + ": " + r.cause.Error() }
func (r *reason) Unwrap() []error { return []error{r.kind, r.cause} }
