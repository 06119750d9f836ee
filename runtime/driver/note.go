package driver

import (
	"context"
	"time"
)

// Noter is implemented by a [Backend] that can keep short notes at its engine, for other
// processes to read. No lock depends on a note, and no lock costs more because of notes.
//
// A note has a name: a topic, a slash and any text. A Locker writes these notes:
//
//	process/<id>             which process it is, a [Process] in JSON; for a minute, and written again while it is open
//	wait/<key>               what the holder of the lock waits for, once a call inside it has waited for 0.3 s
//	order/<outer> > <inner>  where a lock of one pattern was taken inside a lock of another; for a week
//
// All notes of one topic have the same ttl.
type Noter interface {
	// PutNote stores text at the engine as the note with this name, in place of an older one, for
	// ttl from now. With a ttl of 0 it removes the note. An engine may keep a note longer while the
	// process that wrote it lives. A note for a week may last only a day, or until somebody deletes
	// it. Note returns the text of the last PutNote that was answered. After an error the text may
	// have been stored, or may be stored later.
	PutNote(ctx context.Context, name, text string, ttl time.Duration) error

	// Note returns the note with this name, or "" if there is none.
	Note(ctx context.Context, name string) (text string, err error)
}

// Process describes the process of a Locker. The owner IDs of its acquisitions are
// "<Process.ID>:<n>".
type Process struct {
	ID      string    `json:"id"`                // a UUID of version 8
	Name    string    `json:"name"`              // Options.Name of the Locker
	Host    string    `json:"host"`              // as the operating system reports it
	PID     int       `json:"pid"`               // its process ID on that host
	Service string    `json:"service,omitempty"` // the last element of the program's import path
	Version string    `json:"version,omitempty"` // of the program's module, or its revision
	Since   time.Time `json:"since"`             // when the Locker was made, by its own clock
}
