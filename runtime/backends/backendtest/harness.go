package backendtest

import (
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Harness says how to reach one engine, and what to expect of it. Several goroutines may
// call its functions at once.
type Harness struct {
	// Name is the name of the row in the table of results: "redis", "etcd (3 members)".
	Name string

	// Open returns a new Backend with a client of its own, as in another process. All
	// Backends of the harness share one engine. Open may register clean-ups with t, and
	// must not fail when the engine is busy. The suite closes the Backend, directly or by
	// a Locker, before these clean-ups run.
	Open func(t testing.TB) driver.Backend

	// OpenFaulty is like Open, but the Faults can disturb the connection of this Backend
	// to the engine. They disturb no other Backend. Over TCP use a [Network].
	OpenFaulty func(t testing.TB) (driver.Backend, Faults)

	// TTL is the length of the lease in checks that wait for its end. It should be short,
	// but long enough for a busy machine to renew it in time: half a second is a good value.
	TTL time.Duration
	// Slack is how much longer than its ttl a lease that nobody renews may last at the
	// engine.
	Slack time.Duration
	// MinTTL and MaxTTL are the shortest and the longest lease that the backend accepts.
	// It must refuse any other ttl with lock.ErrInvalid, and the error must contain the
	// limit as time.Duration prints it. 0 means that only Policy has a limit.
	MinTTL, MaxTTL time.Duration

	// MaxKey is the length in bytes of the longest key of letters and digits that the
	// backend accepts. It must refuse a longer key with lock.ErrInvalid. Unlimited means
	// that there is no limit.
	MaxKey int
	// Refuses returns why the backend refuses key with lock.ErrInvalid, or "" if it
	// accepts key. nil means that it accepts all keys. The suite tries keys of all bytes.
	// Each must be refused, or be a lock of its own.
	Refuses func(key string) (reason string)
	// Key turns a name that the suite chose into a key that the engine's settings allow,
	// for example by a prefix. nil means that the name is the key.
	Key func(name string) string

	// Remove deletes the lock on key at the engine, whoever holds it, as an
	// operator or a server that lost its data does.
	Remove func(t testing.TB, key string)
	// Occupy stores something other than a lock at key, if the engine can store such a
	// thing. It is removed by the end of t.
	Occupy func(t testing.TB, key string)

	// Leftovers returns what the engine stores for keys that begin with prefix, for locks
	// that are held, waited for or subscribed to. Data that the engine keeps for a while,
	// to refuse late requests or to make tokens rise, does not count.
	Leftovers func(t testing.TB, prefix string) []string

	// Holds is how many locks are held and renewed at once. 0 means the value of the
	// environment variable LOCKGEN_HOLDS, or else 300, which is a few batches.
	Holds int
	// Parallel is how many checks run at once. 0 means 16. Set 1 for an engine that runs one
	// request at a time.
	Parallel int

	// SameAs is the row, such as "redis", that has the same Backend on servers in another
	// topology. Then only the behaviours that depend on the topology are checked: Expiry,
	// Waiting, Replies and Close.
	SameAs string

	// Cannot declares the abilities that are missing, each with its reason. The reasons are
	// printed with the results.
	Cannot map[Ability]string
}

// Unlimited, as Harness.MaxKey, says that no key is too long.
const Unlimited = -1

// Ability is something that not every engine, or not every harness, has.
type Ability string

// The abilities. A harness has each ability that Harness.Cannot does not declare.
const (
	// NetworkFaults means Harness.OpenFaulty. An engine in this process has no network that
	// can fail.
	NetworkFaults Ability = "network faults"
	// LateRequests means that the Faults implement [LateFaults].
	LateRequests Ability = "late requests"
	// Removal means Harness.Remove.
	Removal Ability = "removal"
	// Conflict means Harness.Occupy: something other than a lock can be at a key.
	Conflict Ability = "conflict"
	// Inspection means Harness.Leftovers.
	Inspection Ability = "inspection"
	// WakeUp means driver.Notifier: the engine notifies a waiter of a release. If it is missing,
	// the suite checks that the backend refuses to subscribe, and that its waiters get the
	// lock by polling.
	WakeUp Ability = "wake-up"
	// Lapse means that a lease ends if nobody calls its Renew, even if its client lives. A
	// session that keeps itself alive may lack it. Then the suite checks that the lease lasts.
	Lapse Ability = "lapse"
	// FlatHolds means that a process with more locks has no more goroutines. It is missing if
	// each hold has a connection of its own and the client runs a goroutine for each connection.
	// Then the suite checks that there is only one goroutine for each hold.
	FlatHolds Ability = "flat holds"
	// Clock means that the engine itself deletes what nobody uses any more. If it is missing,
	// the record of a lock other than a mutex may stay after a fault, without a holder, until
	// somebody uses its key. Then a storm accepts that such records are left.
	Clock Ability = "clock"
	// ReadWriteLocks, FairLocks, Semaphores and Ticks (driver.Once) are the kinds of driver.Kinded. If one
	// is missing, the suite checks that a Locker refuses it.
	ReadWriteLocks Ability = "read-write locks"
	FairLocks      Ability = "fair locks"
	Semaphores     Ability = "semaphores"
	Ticks          Ability = "ticks"
)

// MutexesOnly returns a Harness.Cannot for a backend that has only mutexes.
func MutexesOnly(reason string) map[Ability]string {
	return map[Ability]string{ReadWriteLocks: reason, FairLocks: reason, Semaphores: reason, Ticks: reason}
}

// topology is the ability that the results name as missing if SameAs leaves checks to another row.
const topology Ability = "difference"

// Faults disturb the connection of one Backend to its engine. Its methods may be called
// while calls are under way.
type Faults interface {
	// LoseReplies lets requests reach the engine, and loses the answers.
	LoseReplies()
	// Silence loses requests and answers without an error: connections stay open, and new
	// ones are accepted. For the client the engine hangs; for the engine the client has died.
	Silence()
	// Delay makes all answers from now on d late.
	Delay(d time.Duration)
	// Heal ends all faults. Connections that lost something are cut.
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
	// Arrived is closed when a request was held back.
	Arrived() <-chan struct{}
	// Overtake cuts the connections of the held requests on the client's side. The client
	// sends its next requests on new connections, and these are not held.
	Overtake()
	// Deliver sends the held requests to the engine, and returns when it has had time to
	// act on them. The answers are lost.
	Deliver()
}

// check fails t if h is incomplete, or if Cannot is wrong.
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
