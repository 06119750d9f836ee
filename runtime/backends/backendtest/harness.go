package backendtest

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Harness says how to reach one engine, and what is to be expected of it. All
// functions may be called from several goroutines at once.
type Harness struct {
	// Name is the row of the table of results: "redis", "etcd (3 members)".
	Name string

	// Open returns a new Backend on the engine that all Backends of the harness
	// share: with a client of its own, as in another process. It may register
	// clean-ups with t and must not fail when the engine is busy. The suite
	// closes the Backend, itself or by a Locker, before these clean-ups run.
	Open func(t testing.TB) driver.Backend

	// OpenFaulty is Open of a Backend whose way to the engine can be disturbed
	// by the Faults, and by these alone: no other Backend notices. Over TCP that
	// is a [Network].
	OpenFaulty func(t testing.TB) (driver.Backend, Faults)

	// TTL is the lease of checks that wait for its end: as short as the engine
	// allows and a busy machine can renew in time (half a second, rather than less).
	TTL time.Duration
	// Slack is how much later than after its ttl the engine may end a lease
	// that nobody renews, and let the next one in.
	Slack time.Duration
	// MinTTL and MaxTTL are the shortest and the longest lease that the backend
	// takes. A ttl outside is refused with lock.ErrInvalid, by an error that
	// holds the limit as time.Duration prints it. 0 is no limit but Policy's own.
	MinTTL, MaxTTL time.Duration

	// MaxKey is the longest key that the backend takes, in bytes, of letters
	// and digits. One that is longer is refused with lock.ErrInvalid. Unlimited
	// says that none is too long.
	MaxKey int
	// Refuses returns why the backend refuses key with lock.ErrInvalid, or "" if
	// it takes it. nil: it takes all. The suite tries keys of all bytes, and
	// requires of each that it is refused so, or is a lock of its own.
	Refuses func(key string) (reason string)
	// Key turns a name that the suite chose into a key that the engine's
	// settings allow: puts a prefix before it. nil leaves it as it is.
	Key func(name string) string

	// Remove deletes the lock on key at the engine, whoever holds it, as an
	// operator or a server that lost its data does.
	Remove func(t testing.TB, key string)
	// Occupy puts something that is no lock at key, where the engine has room
	// for such a thing; it is removed by the end of t.
	Occupy func(t testing.TB, key string)

	// Leftovers returns what the engine keeps for keys that begin with prefix, for
	// locks that are held, waited for or subscribed to; what is kept for a while to
	// refuse what comes late, or to have tokens rise, does not count.
	Leftovers func(t testing.TB, prefix string) []string

	// Holds is how many locks are held, and renewed, at once: 300 unless set, which is a few
	// batches, or what the environment has by the name of LOCKGEN_HOLDS.
	Holds int
	// Parallel is how many checks run at once: 16 unless set, and 1 for an engine
	// that does one thing after the other.
	Parallel int

	// SameAs is the row whose Backend this one is too, on servers in another topology:
	// "redis". Then only what a topology can change is checked: Expiry, Waiting, Replies
	// and Close. The rest is that row's.
	SameAs string

	// Cannot declares what is missing, each with its reason, which is printed
	// with the results.
	Cannot map[Ability]string
}

// Unlimited, as Harness.MaxKey, says that no key is too long.
const Unlimited = -1

// Ability is something that not every engine, or not every harness, has.
type Ability string

// The abilities. What is not declared in Harness.Cannot is there.
const (
	// NetworkFaults is Harness.OpenFaulty. An engine in this process may have no
	// network that could fail.
	NetworkFaults Ability = "network faults"
	// LateRequests is that the Faults implement [LateFaults].
	LateRequests Ability = "late requests"
	// Removal is Harness.Remove.
	Removal Ability = "removal"
	// Conflict is Harness.Occupy: something else can live at a lock's key.
	Conflict Ability = "conflict"
	// Inspection is Harness.Leftovers.
	Inspection Ability = "inspection"
	// WakeUp is driver.Notifier: a waiter hears of a release from the engine. A
	// backend without it is checked to refuse it, and to have its waiters served
	// by polling.
	WakeUp Ability = "wake-up"
	// Lapse is that a lease that nobody calls Renew on ends, though its client
	// lives. A session that keeps itself alive may lack it; then the suite checks
	// that the lease does last.
	Lapse Ability = "lapse"
	// FlatHolds is that the goroutines of the process do not grow with the locks
	// that it holds. Where each hold has a connection for itself, whose client runs
	// a goroutine for it, they do; then the suite checks that it is one and no more.
	FlatHolds Ability = "flat holds"
	// Clock is that the engine itself ends what nobody uses any more. Without it the record
	// of a lock that is no mutex may stay after a fault, without a holder, until somebody
	// uses its key; then a storm does not ask that nothing of those is left.
	Clock Ability = "clock"
	// ReadWriteLocks, FairLocks, Semaphores and Ticks (driver.Once) are what driver.Kinded says. A backend
	// without a kind is checked to have a Locker refuse it.
	ReadWriteLocks Ability = "read-write locks"
	FairLocks      Ability = "fair locks"
	Semaphores     Ability = "semaphores"
	Ticks          Ability = "ticks"
)

// MutexesOnly is a Harness.Cannot of a backend that has no other kinds of lock.
func MutexesOnly(reason string) map[Ability]string {
	return map[Ability]string{ReadWriteLocks: reason, FairLocks: reason, Semaphores: reason, Ticks: reason}
}

// topology is what the results name as missing where SameAs leaves checks to another row.
const topology Ability = "difference"

// Faults disturb the way of one Backend to its engine. All may be called while
// calls are under way.
type Faults interface {
	// LoseReplies lets requests reach the engine, and loses the answers.
	LoseReplies()
	// Silence loses requests and answers, without a word: connections stay open
	// and new ones are accepted. The engine seems to hang; for the engine, the
	// client has died.
	Silence()
	// Delay makes all answers from now on take d longer.
	Delay(d time.Duration)
	// Heal ends all that. Connections that lost something are cut.
	Heal()
}

// LateFaults are Faults that can also deliver requests late.
type LateFaults interface {
	Faults
	// Hold holds back all requests from now on.
	Hold() Held
}

// Held are requests that were held back on their way to the engine.
type Held interface {
	// Arrived is closed when there is one.
	Arrived() <-chan struct{}
	// Overtake cuts the connections that carry what is held, as seen by the
	// client. What it sends from now on goes on new ones, and is not held.
	Overtake()
	// Deliver hands the engine what was held, and returns when it has had time to
	// act on it. The answers are lost.
	Deliver()
}

// check reports what is missing in h, or is said to be.
func (h *Harness) check(t testing.TB) {
	t.Helper()
	if h.Name == "" || h.Open == nil || h.TTL <= 0 || h.MaxKey == 0 {
		t.Fatal("backendtest: a Harness needs Name, Open, TTL and MaxKey")
	}
	for ability, has := range map[Ability]bool{
		NetworkFaults: h.OpenFaulty != nil, Removal: h.Remove != nil, Conflict: h.Occupy != nil,
		Inspection: h.Leftovers != nil,
	} {
		switch reason, declared := h.Cannot[ability]; {
		case has && declared:
			t.Fatalf("backendtest: %s: Cannot[%q], but the harness has it", h.Name, ability)
		case !has && reason == "":
			t.Fatalf("backendtest: %s: the harness lacks %q: add it, or say in Cannot why it can't be", h.Name, ability)
		}
	}
	for ability, reason := range h.Cannot {
		if reason == "" {
			t.Fatalf("backendtest: %s: Cannot[%q] needs a reason", h.Name, ability)
		}
	}
}

func (h *Harness) withDefaults(t testing.TB) *Harness {
	t.Helper()
	c := *h
	if c.Holds == 0 {
		c.Holds = int(many(t, holdsEnv, 300))
	}
	if c.Parallel == 0 {
		c.Parallel = 16
	}
	if c.Refuses == nil {
		c.Refuses = func(string) string { return "" }
	}
	if c.Key == nil {
		c.Key = func(name string) string { return name }
	}
	return &c
}
