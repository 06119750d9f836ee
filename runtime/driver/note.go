package driver

import (
	"context"
	"time"
)

// Noter is implemented by a [Backend] that can keep short notes at its engine, for other
// processes to read. No lock depends on a note, and none costs more for it.
//
// A note has a name: a topic, a slash and any text. A Locker has these:
//
//	process/<id>             who it is, a [Process] in JSON; for a minute, and put again as long as it is open
//	wait/<key>               what the holder of the lock waits for, once a call inside of it has waited for 0.3 s
//	order/<outer> > <inner>  where a lock of one pattern was taken inside of one of another; for a week
//
// Notes of one topic are put for the same ttl.
type Noter interface {
	// PutNote has the engine keep text as the note of this name, in place of the one that
	// is there, for ttl from now; with a ttl of 0 it takes the note away. An engine may keep a
	// note longer while the process that put it lives. One for a week may stay for only a day, or
	// until somebody deletes it. Note returns the text of the last PutNote that was answered;
	// after an error the text may have been put, or may yet be.
	PutNote(ctx context.Context, name, text string, ttl time.Duration) error

	// Note returns the note of this name, or "" if there is none.
	Note(ctx context.Context, name string) (text string, err error)
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
