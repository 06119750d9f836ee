package driver

import (
	"context"
	"time"
)

// Noter is implemented by a [Backend] that can keep short notes at its engine, which
// processes read of each other. A call that has waited for half a second, inside of other
// locks, has a note on each of these that says what it waits for: so calls of several
// processes learn that they wait for each other. No lock depends on a note, and none costs
// more for it.
type Noter interface {
	// PutNote has the engine keep text as the note on key, in place of the one that is
	// there, for ttl from now; with a ttl of 0 it takes the note away. The lock on key
	// does not change. What was put last before an answer is what Note returns; after an
	// error it may have been done, or may yet be.
	PutNote(ctx context.Context, key, text string, ttl time.Duration) error

	// Note returns the note on key, or "" if there is none.
	Note(ctx context.Context, key string) (text string, err error)
}
