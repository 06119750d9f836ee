package lock

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// DefaultTTL is the lease length of a policy that names none.
const DefaultTTL = 30 * time.Second

// MinTTL is the shortest lease that a policy may ask for; engines count in
// milliseconds.
const MinTTL = time.Millisecond

// maxTTL keeps the arithmetic on leases clear of overflow, here and at the engines.
const maxTTL = 100 * 365 * 24 * time.Hour

// Policy is what one directive asks for. The zero value is an exclusive lock
// with the defaults; so is a nil *Policy. A Policy is never written to by this
// package and may be shared by any number of goroutines.
type Policy struct {
	Method  string // the locked method, for errors and events
	Pattern string // the key's pattern, "seckill:voucher:<id>"
	Backend string // one of Options.Backends; empty for the Locker's own

	TTL  time.Duration // lease length, renewed until the method returns; 0 is DefaultTTL
	Wait time.Duration // how long to queue; 0 is until the context ends
	Max  time.Duration // how long the watchdog goes on renewing; 0 is without end

	Try       bool // do not queue at all
	Reentrant bool // a nested call under the same context enters at once
	NoRenew   bool // the lease is fixed; the method's context ends with it

	// At most one of Read, Write, Fair, Permits, Once and Leader is set. Locks of one key
	// under policies of different kinds, except Read and Write, are refused with ErrConflict.
	Read    bool // the shared side of a read-write lock
	Write   bool // its exclusive side
	Fair    bool // first come, first served, over all goroutines of all processes
	Permits int  // how many may hold the key at once: a semaphore; 0 is no semaphore
	Weight  int  // how many permits a hold takes; 0 is 1

	// Queue is how many calls may wait for a key in this process. The next one gets
	// ErrBusy at once. 0 is any number. A call that asks the engine counts once it is
	// told that another holds the key; with Fair or Once it counts at once.
	Queue int

	// Delay is for how long a lock that was lost stays closed after its TTL, for
	// resources that check no fencing token. A release ends it.
	Delay time.Duration

	// Once is for a job that runs once for each planned tick: see [Locker.AcquireOnce].
	// It is a kind of lock, as Read, Write, Fair and Permits are.
	Once bool

	// Leader is for a method that runs for as long as its process leads: see [Locker.Lead].
	// It is a Fair lock whose holder has a name. It excludes Skip and AtLeast.
	Leader bool

	// AtLeast is how long the lock is held at the least, counted from when it was
	// taken. If the method returns sooner, the call returns too, and the release
	// follows in the background, and with it the completion of a Once. The watchdog renews
	// the lease until then; with NoRenew, AtLeast has to be shorter than the TTL by 2 % and
	// the time of a request, or the lock is lost at its end.
	AtLeast time.Duration

	// Sticky is for how long this process keeps the lease after a release while nobody here
	// uses it. The next call here begins on it without a command to the engine, with the
	// next token. The lease goes back as soon as another process waits for the key: a Try
	// does not wait, and other client libraries can't ask for it, so that these find the lock
	// held. Sticky is for mutexes, at a backend that implements driver.Recaller; it does
	// nothing where Options.HandOff is negative.
	//
	// A process that dies, or hangs, while it keeps the lease costs others up to Sticky, or
	// TTL if that is less. So the lease is no longer than that at first, and is renewed to
	// the whole TTL for a hold that lasts longer than a third of it. Make Sticky much longer
	// than a round trip to the engine: a lease that is too short for that is not kept. After
	// ten times Sticky the lease goes back in any case.
	Sticky time.Duration

	// Skip has a generated wrapper, and [Locker.Do], return no error where the method
	// did not run because another holds the lock, or the tick was completed.
	Skip bool

	tick string // of Once: set by AcquireOnce
	name string // of Leader: set by Lead

	merges bool // of a Merger, whose callers have waits of their own
	listed bool // of Requests
}

// Request names one of several locks that are taken together.
type Request struct {
	Policy *Policy // nil is the zero Policy
	Key    string  // byte for byte what the engine is asked for
}

var defaultPolicy = &Policy{}

func (p *Policy) ttl() time.Duration {
	if p.TTL == 0 {
		return DefaultTTL
	}
	return p.TTL
}

// terms is p without what tells where it was asked for.
func (p *Policy) terms() Policy {
	terms := *p
	terms.Method, terms.Pattern, terms.TTL, terms.listed = "", "", p.ttl(), false
	return terms
}

// differences names the fields in which the terms of a and b differ, for an error.
func differences(a, b *Policy) string {
	var all []string
	x, y := reflect.ValueOf(a.terms()), reflect.ValueOf(b.terms())
	for i := range x.NumField() {
		if f := x.Type().Field(i); f.IsExported() && !x.Field(i).Equal(y.Field(i)) {
			all = append(all, fmt.Sprintf("%s is %v and %v", f.Name, x.Field(i), y.Field(i)))
		}
	}
	return strings.Join(all, ", ")
}

// validate reports what can't be right about p.
func (p *Policy) validate() error {
	if err := p.validateKind(); err != nil {
		return err
	}
	switch {
	case p.TTL != 0 && p.TTL < MinTTL:
		return invalidf("TTL is %v; the shortest lease is %v (0 means %v)", p.TTL, MinTTL, DefaultTTL)
	case p.TTL > maxTTL:
		return invalidf("TTL is %v; the longest lease is %v", p.TTL, maxTTL)
	case p.Wait < 0:
		return invalidf("Wait is %v; it must not be negative (Try means not to wait)", p.Wait)
	case p.Max < 0:
		return invalidf("Max is %v; it must not be negative", p.Max)
	case p.Wait > 0 && p.Try:
		return invalidf("Wait and Try exclude each other")
	case p.AtLeast < 0:
		return invalidf("AtLeast is %v; it must not be negative", p.AtLeast)
	case p.AtLeast > 0 && p.NoRenew && p.AtLeast > p.ttl():
		return invalidf("AtLeast is %v, and the lease, which is not renewed, ends after %v", p.AtLeast, p.ttl())
	case p.AtLeast > 0 && p.Max > 0 && p.AtLeast > p.Max:
		return invalidf("AtLeast is %v, and the lease is renewed for %v only", p.AtLeast, p.Max)
	case p.Max > 0 && p.NoRenew:
		return invalidf("Max and NoRenew exclude each other: a lease that is not renewed ends after its TTL")
	case p.Sticky != 0:
		return p.validateSticky()
	}
	return nil
}

// validateKind is the part of validate about the kind of lock.
func (p *Policy) validateKind() error {
	kinds := 0
	if p.kind() != 0 {
		for _, set := range []bool{p.Read, p.Write, p.Fair, p.Permits != 0, p.Once, p.Leader} {
			if set {
				kinds++
			}
		}
	}
	switch {
	case kinds > 1:
		return invalidf("Read, Write, Fair, Permits, Once and Leader exclude each other")
	case p.Permits < 0:
		return invalidf("Permits is %d; a semaphore has at least 1", p.Permits)
	case p.Weight < 0 || p.Weight > max(p.Permits, 0):
		return invalidf("Weight is %d; it is at least 1 and at most Permits, which is %d", p.Weight, p.Permits)
	case p.Queue < 0:
		return invalidf("Queue is %d; it must not be negative", p.Queue)
	case p.Queue > 0 && p.Try:
		return invalidf("Queue and Try exclude each other: who tries does not wait")
	case p.Delay < 0:
		return invalidf("Delay is %v; it must not be negative", p.Delay)
	case p.Delay > maxTTL:
		return invalidf("Delay is %v; the longest is %v", p.Delay, maxTTL)
	case p.Once && p.Reentrant:
		return invalidf("Once and Reentrant exclude each other: a nested call has a tick of its own")
	case p.Leader && (p.Skip || p.AtLeast > 0):
		return invalidf("Leader excludes Skip and AtLeast: it campaigns until it leads, and who leads resigns by returning")
	case p.merges && (p.Read || p.Permits > 0 || p.Once || p.Leader || p.Try || p.Reentrant || p.Skip):
		return invalidf("a Merger's policy has none of Read, Permits, Once, Leader, Try, Reentrant and Skip: its sections run one at a time, for callers that wait")
	}
	return nil
}

// validateSticky is the part of validate about Sticky.
func (p *Policy) validateSticky() error {
	switch {
	case p.Sticky < MinTTL:
		return invalidf("Sticky is %v; the shortest is %v (0 means that a release frees the lock at once)", p.Sticky, MinTTL)
	case p.Sticky > maxTTL/maxStickyFactor:
		return invalidf("Sticky is %v; the longest is %v", p.Sticky, maxTTL/maxStickyFactor)
	case p.kind() != 0:
		return invalidf("Sticky is for mutexes; with Read, Write, Fair, Permits, Once or Leader the lock goes to others as they come")
	case p.NoRenew:
		return invalidf("Sticky and NoRenew exclude each other: the next holder would begin on what is left of a fixed lease")
	case p.Delay > 0:
		return invalidf("Sticky and Delay exclude each other: a lock that is lost while nobody uses it would stay closed")
	}
	return nil
}

// kind is what kind of lock p asks for: 0 is a mutex.
func (p *Policy) kind() driver.Kind {
	switch {
	case p.Read:
		return driver.Read
	case p.Write:
		return driver.Write
	case p.Fair:
		return driver.Fair
	case p.Permits > 0:
		return driver.Permits
	case p.Once:
		return driver.Once
	case p.Leader:
		return driver.Fair
	}
	return 0
}

// mode is p's kind of lock as a Backend is asked for it.
func (p *Policy) mode() driver.Mode {
	m := driver.Mode{Kind: p.kind(), Tick: p.tick, Name: p.name}
	if m.Kind == driver.Permits {
		m.Permits, m.Weight = p.Permits, max(p.Weight, 1)
	}
	return m
}

func invalidf(format string, args ...any) error {
	return because(ErrInvalid, fmt.Errorf(format, args...))
}

// waitEnd returns when a wait that begins now ends by p: the zero time if only
// the context ends it.
func (l *Locker) waitEnd(p *Policy) time.Time {
	if p.Wait <= 0 {
		return time.Time{}
	}
	return time.Now().Add(p.Wait)
}

// timerAt returns a channel that gets a value at end; for the zero time, nil.
func timerAt(end time.Time) <-chan time.Time {
	if end.IsZero() {
		return nil
	}
	return time.After(time.Until(end))
}
