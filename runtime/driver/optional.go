package driver

import (
	"context"
	"time"
)

// Shared is implemented by a [Backend] that several Lockers may share:
// lock.New calls Attach once, and the last of as many calls of Close frees it.
type Shared interface {
	// Attach counts one Locker more. It does no I/O.
	Attach()
}

// Bounded is implemented by a [Backend] where many calls at the same time gain nothing or cost
// too much, for example because each command needs a connection. Without it, an AcquireAll may
// call Acquire, and Release of its leases, from 256 goroutines at once. A [BatchAcquirer] or a
// [BatchReleaser] gets one call instead of these.
type Bounded interface {
	// AtOnce is how many calls a single AcquireAll may have under way: 1 is one after
	// the other.
	AtOnce() int
}

// BatchAcquirer is implemented by a [Backend] that takes many keys at the cost of few
// commands. Only the commands are joint: each acquisition has a lease or an error of its own,
// and is undone by itself.
type BatchAcquirer interface {
	// AcquireAll is Acquire for each of as, which are mutexes of different keys that nobody
	// waits for: Queue is false. The results have a lease or an error for each. What comes
	// after a refused acquisition need not be tried: its error may be a HeldError.
	AcquireAll(ctx context.Context, as []*Acquisition) ([]Lease, []error)
}

// BatchReleaser is implemented by a [Backend] that frees many keys at the cost of few
// commands.
type BatchReleaser interface {
	// ReleaseAll is Release for each lease, with lasts[i] for leases[i]; the result has one
	// error, or nil, for each.
	ReleaseAll(ctx context.Context, leases []Lease, lasts []uint64) []error
}

// LossNotifier is implemented by a [Lease] whose client may learn that it ends
// before its deadline: its session has expired, or a watch saw that its key is
// gone. The holder then hears of it at once, not at the next renewal.
type LossNotifier interface {
	// NotifyLoss is called once, when the lease has its holder. look makes the
	// Locker look at the lease now: if Deadline has passed, it ends the holder's
	// context, and if a renewal is due by Deadline, it calls Renew; it has done
	// so on return. A lease that is lost must say so by a Deadline in the past,
	// before look is called. look may be called from any goroutine, any number of
	// times, and after the release, but not under a lock that a method of the
	// backend takes. What happened before NotifyLoss needs no call: the Locker
	// looks once by itself.
	NotifyLoss(look func())
}

// ProvisionalLease is implemented by a [Lease] that the engine may have granted for a
// shorter time than was asked for, because it granted it by itself to a waiter. The Locker
// renews it to the whole length after a third of that time. An acquisition with NoRenewal
// gets no such lease.
type ProvisionalLease interface {
	// Term is the length that Deadline was computed with: less than the
	// acquisition's TTL as long as the lease is provisional.
	Term() time.Duration
}

// WantedLease is implemented by a [Lease] whose engine tells when another process waits for
// the key.
type WantedLease interface {
	// Wanted reports whether one does, as far as the engine has told. The Locker then hands
	// the lease on inside its process only for 1.5 ms, counted from when it asked for it. It
	// is called under a mutex of the Locker, and must not block.
	Wanted() bool
}

// Recaller is implemented by a [Backend] whose mutexes a process may keep while it does not
// use them, because the engine tells it when another process waits for one.
type Recaller interface {
	// NotifyWanted is called once for each lease of an acquisition with Recall, when it has its
	// holder. The Backend calls look when another process begins to wait for the key; at once, if
	// one may have begun since the attempt that was granted; and after each gap in which the
	// engine's notice may have been lost, because the engine sends no second one. look may be
	// called from any goroutine, any number of times, and after the release, but not under a
	// mutex that a method of the backend takes.
	NotifyWanted(a *Acquisition, look func())
}

// Pinger is implemented by a [Backend] that can say whether locks could be taken
// now: the engine answers, the credentials are right, and the client is one that
// the Backend can use. Ping takes no lock. It returns within 100 ms after ctx
// ended. Its error says what to mend.
type Pinger interface {
	// Ping blocks until the engine has answered.
	Ping(ctx context.Context) error
}

// Named is implemented by a [Backend] for tests that stands for a service's other backends
// as well. A Locker that was given no named backends asks it for each that a policy names.
// Named returns the same one each time, and may be called from any number of goroutines.
type Named interface {
	// Named returns the backend of this name, which Options.Backends would have.
	Named(name string) Backend
}

// BatchRenewer is implemented by a [Backend] that renews many leases of its
// own at the cost of few commands.
type BatchRenewer interface {
	// RenewAll is Renew for each lease, with ttls[i] for leases[i]; the result
	// has one error, or nil, for each.
	RenewAll(ctx context.Context, leases []Lease, ttls []time.Duration) []error
}

// Notifier is implemented by a [Backend] whose engine tells when a key may
// have become free. Notices are hints: one may be lost or needless.
type Notifier interface {
	// Subscribe returns once the engine has confirmed the subscription, so
	// that a release after it returns is noticed.
	Subscribe(ctx context.Context, a *Acquisition) (Subscription, error)
}

// Subscription is one waiter's interest in one key.
type Subscription interface {
	// C receives a value when the key may have become free, and when the
	// subscription was restored after a gap.
	C() <-chan struct{}
	Close()
}
