package lock

import (
	"cmp"
	"fmt"
	"time"
)

// Options of a [Locker]. The zero value is the default, and so is nil.
type Options struct {
	// Backends are the named backends that Policy.Backend chooses from.
	Backends map[string]Backend

	// HandOff is how long a lease is handed on inside this process, without a
	// command to the engine, while goroutines of it wait for the key. 0 means
	// DefaultHandOff. With a negative value every hold gets a lease of its own, except
	// readers that have waited for the same answer. It is never longer than a quarter of
	// the lease.
	HandOff time.Duration

	// Name is the name of this process: [Locker.Leader] returns it while the process leads, and
	// lockctl shows it beside the locks that the process holds. Empty is the host's name and the
	// process's number, "host:4711".
	Name string

	// TTL and Wait are for policies that say nothing of their own: how long a lease is, and
	// how long a call queues before it gets ErrNotAcquired. 0 means DefaultTTL, and until
	// the context ends. Policies with Try or Leader ignore Wait. Of a Merger it is the wait of
	// its callers.
	TTL, Wait time.Duration

	// Patterns overrides what directives say, by Policy.Pattern, for what differs between the
	// environments that a service runs in. Processes may differ. A pattern that no policy
	// has is no error. It must not be written to.
	Patterns map[string]Override

	// Prefix stands before every key at the engines, such as "staging:" where
	// environments share one. The Locker's callers, events and errors leave it out.
	// Processes that guard the same thing need the same Prefix. Empty by default, so that
	// keys are what other clients lock too, byte for byte.
	Prefix string

	// Observer hears what the Locker does: metrics, traces, logs. nil: nobody.
	Observer Observer
}

// Override is what [Options] say of a pattern instead of its directive. 0 leaves it as it is.
type Override struct {
	TTL  time.Duration // never shorter than the method may be paused for
	Wait time.Duration // not of a policy with Try or Leader; of a Merger's, that of its callers
	Max  time.Duration // not of a policy with NoRenew
}

// mustValidate returns the overrides, or panics if an option can't be right.
func (o *Options) mustValidate() map[string]Override {
	if err := (&Policy{TTL: o.TTL, Wait: o.Wait}).validate(); err != nil {
		panic("lock: Options: " + err.Error())
	}
	for pattern, over := range o.Patterns {
		if err := (&Policy{TTL: over.TTL, Wait: over.Wait, Max: over.Max}).validate(); err != nil {
			panic(fmt.Sprintf("lock: Options.Patterns[%q]: %v", pattern, err))
		}
	}
	return o.Patterns
}

// queues reports whether a Wait counts for p.
func (p *Policy) queues() bool { return !p.Try && !p.Leader && !p.merges }

// complete returns p with the overrides of the Locker's Options, and with their defaults where
// p says nothing.
func (l *Locker) complete(p *Policy) *Policy {
	if p == nil {
		p = defaultPolicy
	}
	if l == nil || len(l.patterns) == 0 && l.defaults.TTL == 0 && l.defaults.Wait == 0 { // validate refuses a nil one
		return p
	}
	over, full := l.patterns[p.Pattern], *p
	full.TTL = cmp.Or(over.TTL, p.TTL, l.defaults.TTL)
	if p.queues() {
		full.Wait = cmp.Or(over.Wait, p.Wait, l.defaults.Wait)
	}
	if !p.NoRenew {
		full.Max = cmp.Or(over.Max, p.Max)
	}
	if full == *p {
		return p
	}
	changed := full // full itself does not escape: to return p costs no allocation
	return &changed
}
