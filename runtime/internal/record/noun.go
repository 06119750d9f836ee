package record

import (
	"cmp"
	"fmt"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What may be at a key, or is asked for, in errors.
const (
	Mutex = "a mutex"
	other = "another kind of lock"
)

// Beside is the answer to who asks for one kind of lock where something else is.
func Beside(is, asked string) error {
	return fmt.Errorf("%w: %s is at the key, and %s was asked for", driver.ErrConflict, is, asked)
}

// InsteadOf is the answer to who asks for a lock that is no mutex where something else is.
func InsteadOf(is string) error { return Beside(is, other) }

// Noun says what the record in value is: "a fair lock". It is "" if value is no record.
func Noun(value string) string {
	_, s, err := decode(Resolve(value, 0))
	switch {
	case err != nil || value == "":
		return ""
	case s.Value != "":
		return "a value that processes agree on"
	case len(s.In)+len(s.Queue) > 0:
		return noun(append(s.In, s.Queue...)[0].Kind)
	case len(s.Done) > 0:
		return noun(kindOnce)
	}
	return noun(s.Last)
}

var nouns = map[string]string{
	kindRead: "a read-write lock", kindWrite: "a read-write lock", kindFair: "a fair lock",
	kindPermits: "a semaphore", kindCondition: "a condition", kindOnce: "a job that runs once",
}

// noun says what a lock of this kind is.
func noun(kind string) string { return cmp.Or(nouns[kind], other) }
