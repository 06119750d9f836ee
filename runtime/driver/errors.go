package driver

import "errors"

// What an engine answers. Package lock has these under the same names, and wraps
// them in its Error. Match with [errors.Is].
var (
	// ErrUnavailable says that the engine refused or could not be reached.
	ErrUnavailable = errors.New("engine unavailable")

	// ErrIndeterminate says that the outcome of an acquire is unknown.
	ErrIndeterminate = errors.New("outcome unknown")

	// ErrLost says that the lock was held and may no longer be.
	ErrLost = errors.New("lock lost")

	// ErrConflict says that something that is no lock of ours lives at the key.
	ErrConflict = errors.New("key is in use by something that is no lock")

	// ErrInvalid says that a key, a policy or an option cannot be right. Nothing
	// was sent.
	ErrInvalid = errors.New("invalid")

	// ErrDone says that the tick was completed before.
	ErrDone = errors.New("done already")

	// ErrClosed says that the Locker or the Backend is closed.
	ErrClosed = errors.New("locker closed")
)
