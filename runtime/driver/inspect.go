package driver

import (
	"context"
	"iter"
	"time"
)

// Inspector is implemented by a [Backend] that can tell what locks there are at its engine,
// those of other clients included, as far as their layout is known. It is for operators:
// what it tells may be over by the time that it is read.
type Inspector interface {
	// Locks returns the locks whose key matches pattern, in which * stands for any text and
	// ? for one byte. They come in the engine's order, and a lock that comes or goes
	// meanwhile may be among them or not, or twice. It reads a part after the other, so
	// that its memory does not grow with the number of locks. An error ends it.
	Locks(ctx context.Context, pattern string) iter.Seq2[*LockInfo, error]

	// Lock returns the lock at key, or nil if there is none. ErrConflict says that what is
	// there is no lock that it knows.
	Lock(ctx context.Context, key string) (*LockInfo, error)

	// Break frees the lock at key of the holder with this ID, which may be another's, and
	// tells those that wait. That holder learns of it by its next renewal and writes until
	// then: only the fencing token keeps it out. ErrLost says that it holds the lock no
	// more, ErrInvalid that a lock of this layout can't be freed for another.
	Break(ctx context.Context, key, id string) error
}

// LockInfo is what an engine tells about one lock.
type LockInfo struct {
	Key     string   // byte for byte
	Kind    Kind     // Read|Write is a read-write lock; 0 is a mutex
	Holders []Holder // empty: nobody is inside
	Waiters int      // in the engine's queue; negative if the engine does not tell
}

// Process is who a Locker is: the owner IDs of its acquisitions are "<Process.ID>:<n>".
type Process struct {
	ID      string    `json:"id"`                // a UUID of version 8
	Name    string    `json:"name"`              // Options.Name of the Locker
	Host    string    `json:"host"`              // as the system has it
	PID     int       `json:"pid"`               // its process number there
	Service string    `json:"service,omitempty"` // the last element of the program's import path
	Version string    `json:"version,omitempty"` // of the program's module, or its revision
	Since   time.Time `json:"since"`             // when the Locker was made, by its own clock
}

// Registrar is implemented by a [Backend] that can keep at its engine who its Lockers are.
// A Locker registers once it has held a lock for a while, and again from time to time; no
// lock costs more for it. What goes wrong with it is nothing to a lock.
type Registrar interface {
	// Register has the engine know p for ttl from now; with a ttl of 0 it forgets p.
	Register(ctx context.Context, p *Process, ttl time.Duration) error

	// Process returns the process with this ID, or nil if the engine knows none.
	Process(ctx context.Context, id string) (*Process, error)
}
