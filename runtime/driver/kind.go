package driver

import (
	"context"
	"strings"
	"time"
)

// Kind is a set of kinds of lock other than the mutex. The zero Kind is a mutex.
type Kind uint8

// The kinds of lock.
const (
	Read      Kind = 1 << iota // the shared side of a read-write lock
	Write                      // its exclusive side
	Fair                       // a mutex that is granted in the order in which it was asked for, over all goroutines of all processes
	Permits                    // a semaphore
	Condition                  // a condition variable: an acquisition waits until it is signalled
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

// Kinded is implemented by a [Backend] that has kinds of lock other than the mutex. A Locker asks
// no other Backend for one.
type Kinded interface {
	// Kinds returns the union of those kinds. It does no I/O.
	Kinds() Kind
}

// Mode says what kind of lock an acquisition asks for. The zero Mode is a mutex.
type Mode struct {
	Kind    Kind // 0, or one kind
	Permits int  // for Kind Permits: how many there are
	Weight  int  // for Kind Permits: how many of them it takes

	// Tick, for Kind Once, is the tick that is to be run once. Acquire returns ErrDone if it was
	// completed, at once or after a wait.
	Tick string
	// Name, for Kind Fair, is the name that Viewer reports for the holder.
	Name string
}

// Downgrader is implemented by a [Lease] of Kind Write that can become one of Kind Read.
type Downgrader interface {
	// Downgrade makes the lease one of Kind Read in one step: nobody writes in between, and waiting
	// readers come in. last is the highest token that was used: those above are given back, as by
	// Release. It may be called again after an error. ErrLost means that the engine answered "not
	// the owner".
	Downgrade(ctx context.Context, last uint64) error
}

// Completer is implemented by a [Lease] of Kind Once.
type Completer interface {
	// Complete is Release, and records in the same step that the tick was completed. nil means that
	// it is recorded. ErrLost means that the lease is over, and that the tick was not recorded when
	// the engine answered.
	Complete(ctx context.Context, last uint64) error
}

// Viewer is implemented by a [Backend] that can say who holds a lock of Kind Fair.
type Viewer interface {
	// View returns the holder of a.Key, or nil. It takes no lock.
	View(ctx context.Context, a *Acquisition) (*Holder, error)
}

// Holder is a holder of a lock.
type Holder struct {
	ID    string        // of the acquisition
	Name  string        // Mode.Name of the acquisition
	Token uint64        // its first fencing token
	Left  time.Duration // how long its lease lasts at most if it is not renewed

	// Only an Inspector sets these. It leaves Name, Token and Left zero if the engine does not know
	// them.
	Client string    // the client whose layout the lock has: "lockgen", "Redisson"
	Kind   Kind      // the side of a read-write lock, or LockInfo.Kind
	Since  time.Time // when it was granted, by the engine's clock; zero if that is not known
}

// Caller is implemented by a [Backend] that has Kind Condition. An acquisition of such a key waits
// in its queue, and gets a lease once it is signalled. Its release confirms the signal. A signal
// that is not confirmed within half a second goes to the next in the queue.
type Caller interface {
	// Call signals the first n acquisitions in the queue of the condition a.Key, or all if n is
	// negative. a.ID names the caller.
	Call(ctx context.Context, a *Acquisition, n int) error
}
