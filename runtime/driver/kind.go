package driver

import "strings"

// Kind is a set of kinds of lock beside the mutex. The zero Kind is a mutex.
type Kind uint8

// The kinds of lock.
const (
	Read      Kind = 1 << iota // the shared side of a read-write lock
	Write                      // its exclusive side
	Fair                       // a mutex that is granted in the order in which it was asked for, over all goroutines of all processes
	Permits                    // a semaphore
	Condition                  // a condition variable: who acquires it waits until it is called
	Once                       // a mutex that remembers which ticks were completed: see Mode.Tick
)

// String names the kinds as a directive does: "read, write".
func (k Kind) String() string {
	var names []string
	for i, name := range []string{"read", "write", "fair", "permits", "condition", "once"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Kinded is implemented by a [Backend] that has other kinds of lock than the mutex. A
// Locker asks no other Backend for one.
type Kinded interface {
	// Kinds returns the union of those kinds. It does no I/O.
	Kinds() Kind
}

// Mode says what kind of lock an acquisition asks for. The zero Mode is a mutex.
type Mode struct {
	Kind    Kind // 0 or one kind
	Permits int  // of Kind Permits: how many there are
	Weight  int  // of Kind Permits: how many of them it takes

	// Tick, of Kind Once, is what is to be run once. Acquire returns ErrDone if it was
	// completed, at once or after a wait.
	Tick string
	// Name, of Kind Fair, is what Viewer tells about the holder.
	Name string
}
