package driver

import (
	"context"
	"time"
)

// Shared is implemented by a [Backend] that several Lockers may share. lock.New calls Attach once
// for each Locker, and the last of as many calls of Close closes the Backend.
type Shared interface {
	// Attach counts one more Locker. It does no I/O.
	Attach()
}

// Bounded is implemented by a [Backend] for which many calls at the same time gain nothing or cost
// too much, for example because each command needs a connection. Without it, an AcquireAll may call
// Acquire, and Release of its leases, from 256 goroutines at once. A [BatchAcquirer] or a
// [BatchReleaser] gets one call instead.
type Bounded interface {
	// AtOnce returns how many calls a single AcquireAll may have under way. 1 means one after the
	// other.
	AtOnce() int
}

// BatchAcquirer is implemented by a [Backend] that takes many keys at the cost of few commands.
// Only the commands are shared: each acquisition has its own lease or error, and is undone by
// itself.
type BatchAcquirer interface {
	// AcquireAll is Acquire for each of as, which are mutexes of different keys. No call waits for
	// them: Queue is false. The results have a lease or an error for each. An acquisition after a
	// refused one need not be tried: its error may be a HeldError.
	AcquireAll(ctx context.Context, as []*Acquisition) ([]Lease, []error)
}

// BatchReleaser is implemented by a [Backend] that frees many keys at the cost of few
// commands.
type BatchReleaser interface {
	// ReleaseAll is Release for each lease, with lasts[i] for leases[i]; the result has one
	// error, or nil, for each.
	ReleaseAll(ctx context.Context, leases []Lease, lasts []uint64) []error
}

// LossNotifier is implemented by a [Lease] whose client may learn that the lease ends before its
// deadline: its session has expired, or a watch saw that its key is gone. The holder then learns of
// it at once, not at the next renewal.
type LossNotifier interface {
	// NotifyLoss is called once, when the lease has its holder. look makes the Locker look at the
	// lease now: if Deadline has passed, it ends the holder's context, and if a renewal is due by
	// Deadline, it calls Renew. It has done so when look returns. If the lease is lost, Deadline
	// must be in the past before look is called. look may be called from any goroutine, any number
	// of times, and after the release, but not under a lock that a method of the backend takes.
	// What happened before NotifyLoss needs no call, because the Locker looks once by itself.
	NotifyLoss(look func())
}

// ProvisionalLease is implemented by a [Lease] that the engine may have granted for a shorter time
// than was asked for, because the engine granted it to a waiter without a request. The Locker
// renews it to the whole length after a third of that time. An acquisition with NoRenewal gets no
// such lease.
type ProvisionalLease interface {
	// Term returns the length from which Deadline was computed: less than the acquisition's TTL
	// while the lease is provisional.
	Term() time.Duration
}

// WantedLease is implemented by a [Lease] whose engine reports when another process waits for the
// key.
type WantedLease interface {
	// Wanted reports whether another process waits, as far as the engine has told. The Locker then
	// hands the lease on inside its process for only 1.5 ms, counted from when it asked for the
	// lease. It calls Wanted under a mutex, so Wanted must not block.
	Wanted() bool
}

// Recaller is implemented by a [Backend] whose mutexes a process may keep while it does not use
// them, because the engine reports when another process waits for one.
type Recaller interface {
	// NotifyWanted is called once for each lease of an acquisition with Recall, when the lease has
	// its holder. The Backend calls look when another process begins to wait for the key, and at
	// once if one may have begun since the attempt that was granted. It also calls look after each
	// gap in which the engine's notice may have been lost, because the engine sends no second one.
	// look may be called from any goroutine, any number of times, and after the release, but not
	// under a mutex that a method of the backend takes.
	NotifyWanted(a *Acquisition, look func())
}

// Pinger is implemented by a [Backend] that can say whether locks could be taken now: the engine
// answers, the credentials are right, and the Backend can use the client. Ping takes no lock. It
// returns within 100 ms after ctx has ended. Its error says what to correct.
type Pinger interface {
	// Ping blocks until the engine has answered.
	Ping(ctx context.Context) error
}

// Named is implemented by a [Backend] for tests that also replaces the other backends of a service.
// A Locker without named backends asks it for each backend that a policy names. Named returns the
// same one each time, and may be called from any number of goroutines.
type Named interface {
	// Named returns the backend with this name, as Options.Backends would.
	Named(name string) Backend
}

// BatchRenewer is implemented by a [Backend] that renews many of its own leases at the cost of few
// commands.
type BatchRenewer interface {
	// RenewAll is Renew for each lease, with ttls[i] for leases[i]; the result
	// has one error, or nil, for each.
	RenewAll(ctx context.Context, leases []Lease, ttls []time.Duration) []error
}

// Notifier is implemented by a [Backend] whose engine reports when a key may have become free.
// Notices are hints: one may be lost or unnecessary.
type Notifier interface {
	// Subscribe returns once the engine has confirmed the subscription, so that a release after it
	// returns is noticed.
	Subscribe(ctx context.Context, a *Acquisition) (Subscription, error)
}

// Subscription is the subscription of one waiter to one key.
type Subscription interface {
	// C receives a value when the key may have become free, and when the subscription was restored
	// after a gap.
	C() <-chan struct{}
	Close()
}
