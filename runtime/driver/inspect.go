package driver

import (
	"context"
	"iter"
)

// Inspector is implemented by a [Backend] that can tell what locks there are at its engine,
// those of other clients included, as far as their layout is known. It is for operators:
// what it tells may have changed by the time that it is read.
type Inspector interface {
	// Locks returns the locks whose key matches pattern, in which * stands for any text and
	// ? for one byte. They come in the engine's order, and a lock that comes or goes
	// meanwhile may be among them or not, or twice. It reads one part after the other, so
	// that its memory does not grow with the number of locks. An error ends it.
	Locks(ctx context.Context, pattern string) iter.Seq2[*LockInfo, error]

	// Lock returns the lock at key, or nil if there is none. ErrConflict says that what is
	// there is no lock that it knows.
	Lock(ctx context.Context, key string) (*LockInfo, error)

	// Break frees the lock at key that the holder with this ID has, in whatever process, and
	// notifies the waiters. The holder learns of it by its next renewal and writes until
	// then: only the fencing token keeps it out. ErrLost says that it does not hold the
	// lock, ErrInvalid that nobody but the holder can free a lock of this layout.
	Break(ctx context.Context, key, id string) error
}

// LockInfo is what an engine tells about one lock.
type LockInfo struct {
	Key     string   // byte for byte
	Kind    Kind     // Read|Write is a read-write lock; 0 is a mutex
	Holders []Holder // empty: nobody is inside
	Waiters int      // in the engine's queue; negative if the engine does not tell
}
