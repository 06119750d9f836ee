package lock

import (
	"fmt"
	"time"
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
}

// Request names one of several locks that are taken together.
type Request struct {
	Policy *Policy
	Key    string
}

var defaultPolicy = &Policy{}

func (p *Policy) ttl() time.Duration {
	if p.TTL == 0 {
		return DefaultTTL
	}
	return p.TTL
}

// terms is p without the names that tell where it was asked for.
func (p *Policy) terms() Policy {
	terms := *p
	terms.Method, terms.Pattern, terms.TTL = "", "", p.ttl()
	return terms
}

// validate reports what can't be right about p.
func (p *Policy) validate() error {
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
	case p.Max > 0 && p.NoRenew:
		return invalidf("Max and NoRenew exclude each other: a lease that is not renewed ends after its TTL")
	}
	return nil
}

func invalidf(format string, args ...any) error {
	return because(ErrInvalid, fmt.Errorf(format, args...))
}
