// Package driver is for the author of an engine, who implements and uses [Backend], [Lease] and the
// optional interfaces. Code that only takes locks needs package lock alone.
//
// The conformance suite for an engine is in runtime/backends/backendtest, and memlock is the
// smallest example.
package driver

import (
	"context"
	"strings"
	"time"
)

// Backend is the minimum that an engine must do: one attempt to acquire, which yields a lease that
// can be renewed and released. An ability that only some engines have is a small interface of its
// own: [BatchRenewer], [Notifier], [LossNotifier].
//
// A Backend knows neither the local queue nor the watchdog: a Locker of package lock calls it, from
// many goroutines, and wraps the raw errors that it returns. Each method must return within 100 ms
// after its context has ended, whatever the engine's client library does.
type Backend interface {
	// Acquire makes one attempt to take a.Key and does not wait for its holder. While another owner
	// holds the key it returns a *HeldError. It may resend, and must be idempotent for one a.ID. An
	// error that leaves open whether the attempt took the key, or may still take it, wraps
	// ErrIndeterminate; the Locker then calls Undo until that succeeds. ErrConflict and ErrInvalid
	// keep their meaning; any other error says that nothing was taken.
	Acquire(ctx context.Context, a *Acquisition) (Lease, error)

	// Undo frees whatever the acquisition with a.ID took, and prevents an attempt of it that is
	// still under way from taking anything. It frees no other acquisition. With a.Queue it also
	// gives up the place in the queue, unless a later acquisition of the same Locker, whose ID has
	// a higher n, waits there. Later acquisitions may be under way at the same time, and may have
	// the place or the lock.
	Undo(ctx context.Context, a *Acquisition) error

	// Close frees what the backend holds open, and soon ends the calls that are under way. A Locker
	// calls it once, when it closes; a backend that Lockers share counts them with Shared.
	Close() error
}

// Acquisition is one attempt, or its repetitions, to take one key.
type Acquisition struct {
	Key       string        // byte for byte the key that other clients use
	ID        string        // "<uuid>:<n>", a UUID of version 8, unique for every acquisition at the engine; holds that get the lease by a hand-off share it
	TTL       time.Duration // lease length
	Tokens    uint64        // how many fencing tokens the lease must reserve, 1 or more
	Mode      Mode          // the kind of lock: one that the Backend has according to Kinded
	NoRenewal bool          // it may never be renewed: the lease has its whole length at once, or is not granted
	Queue     bool          // the caller waits if the key is held: keep its place in the engine's queue, for 10 s at most unless a session has the place
	Recall    bool          // the process may keep the lease while it does not use it: it will call Recaller.NotifyWanted

	// MayHaveRun is set by Backend.Acquire when one of its attempts had no answer, so that it may
	// still run besides the one that was answered. The Locker then calls Undo if the acquisition
	// ends without a lease, for whatever reason.
	MayHaveRun bool
	// MayBeGranted is set by Backend.Acquire when the engine may still give the key to this
	// acquisition without a request, after an attempt that was refused. The Locker then calls Undo
	// if the acquisition ends without a lease.
	MayBeGranted bool
}

// BegunBefore reports whether a was begun before the acquisition with this ID. Both must be of the
// same Locker and key: a Locker counts its acquisitions in the part after the colon.
func (a *Acquisition) BegunBefore(id string) bool {
	_, n, _ := strings.Cut(a.ID, ":")
	_, m, _ := strings.Cut(id, ":")
	return len(n) < len(m) || len(n) == len(m) && n < m
}

// Lease is what the engine granted for one [Acquisition].
type Lease interface {
	// Deadline returns the instant before which the engine does not end the lease by itself. It
	// counts from before the last acknowledged acquire or renewal was sent. It does no I/O and may
	// be called at any time.
	Deadline() Instant

	// Tokens returns the block of fencing tokens first, first+1, ... first+n-1
	// that the lease reserves. The tokens of all earlier leases of the key are
	// lower, and those of all later ones are higher.
	Tokens() (first, n uint64)

	// Renew extends the lease to ttl from now. ErrLost means that the engine answered "not the
	// owner". Any other error leaves the deadline as it is, and Renew is called again; calls may
	// overlap. Renew never creates a lease again, and never shortens one.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release frees the key if this lease still holds it. last is the highest token that was handed
	// out. ErrLost means that the engine answered "not the owner". After any other error Release is
	// called again.
	Release(ctx context.Context, last uint64) error
}

// TokensPerMicrosecond is how fast the lowest next fencing token rises with the server's clock, on
// the engines that have no revision of their own. A new lease's first token is the larger of the
// last one + 1 and this many times the server's clock in microseconds. So tokens rise even if a
// server restarts empty or a stale replica is promoted, and they stay below 2^53 until the year
// 2041.
const TokensPerMicrosecond = 4
