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
)

// String names the kinds as a directive does: "read, write".
func (k Kind) String() string {
	var names []string
	for i, name := range []string{"read", "write", "fair", "permits", "condition"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Kinded is implemented by a [Backend] that has other kinds of lock than the mutex. A
// Locker asks no other Backend for one.
type Kinded interface {
	Kinds() Kind
}

// Mode says what kind of lock an acquisition asks for. The zero Mode is a mutex.
type Mode struct {
	Kind    Kind // 0 or one kind
	Permits int  // of Kind Permits: how many there are
	Weight  int  // of Kind Permits: how many of them it takes
}
