package driver

import (
	"context"
	"iter"
)

// Inspector is implemented by a [Backend] that can list the locks at its engine, including those of
// other clients whose layout it knows. It is for operators: a lock may have changed by the time
// that the result is read.
type Inspector interface {
	// Locks returns the locks whose key matches pattern, in which * stands for any text and ? for
	// one byte. They come in the engine's order. A lock that is taken or freed meanwhile may be
	// missing, or be returned twice. Locks reads one part after the other, so that its memory does
	// not grow with the number of locks. An error ends the sequence.
	Locks(ctx context.Context, pattern string) iter.Seq2[*LockInfo, error]

	// Lock returns the lock at key, or nil if there is none. ErrConflict means that the value there
	// is not a lock that it knows.
	Lock(ctx context.Context, key string) (*LockInfo, error)

	// Break frees the lock at key that the holder with this ID has, in whatever process, and
	// notifies the waiters. The holder learns of it at its next renewal, and continues to write
	// until then: only the fencing token keeps it out. ErrLost means that this ID does not hold the
	// lock. ErrInvalid means that only the holder can free a lock of this layout.
	Break(ctx context.Context, key, id string) error
}

// LockInfo is what an engine knows about one lock.
type LockInfo struct {
	Key     string   // byte for byte
	Kind    Kind     // Read|Write is a read-write lock; 0 is a mutex
	Holders []Holder // empty if nobody holds it
	Waiters int      // in the engine's queue; negative if the engine does not know
}
