package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Ping returns nil if each backend answers that locks could be taken, as a readiness
// probe asks, and otherwise an [*Error] for each that does not. It takes no lock. A
// backend that does not implement driver.Pinger is left out.
func (l *Locker) Ping(ctx context.Context) error {
	if l.closed.Load() {
		return &Error{Op: "ping", Err: ErrClosed}
	}
	var all []error
	for _, name := range slices.Sorted(maps.Keys(l.backends)) {
		p, ok := l.backend(name).(driver.Pinger)
		if !ok {
			continue
		}
		err := driver.Locate(l.backend(name), p.Ping(ctx))
		if err == nil {
			continue
		}
		kind := ErrUnavailable
		switch {
		case errors.Is(err, ErrInvalid):
			kind = ErrInvalid
		case errors.Is(err, ErrClosed):
			kind, err = ErrClosed, errBackendClosed
		}
		if name != "" {
			err = fmt.Errorf("backend %q: %w", name, err)
		}
		all = append(all, &Error{Op: "ping", Err: because(kind, err)})
	}
	return errors.Join(all...)
}

// validate reports what can't be right about an acquire, whatever the state of the
// Locker.
func (l *Locker) validate(p *Policy, key string) error {
	if l == nil {
		return invalidf("the Locker is nil; make one with lock.New")
	}
	if key == "" {
		return invalidf("the key is empty")
	}
	if err := p.validate(); err != nil {
		return err
	}
	if p.Once && p.tick == "" {
		return invalidf("the policy has Once, which needs a tick; call AcquireOnce")
	}
	return l.checkSupport(p)
}

// MustSupport panics with an [*Error] if one of policies can't be right, names a backend
// that does not exist, or asks for a kind of lock that its backend does not have. A
// generated constructor calls it, so that a mistake shows when the service starts.
func (l *Locker) MustSupport(policies ...*Policy) {
	for _, p := range policies {
		p = l.complete(p)
		err := p.validate()
		if err == nil && l != nil {
			err = l.checkSupport(p)
		}
		if err != nil {
			panic(&Error{Op: "policy", Method: p.Method, Key: p.Pattern, Err: err})
		}
	}
}

// checkSupport returns an error if p's backend does not exist or does not have what p asks for.
func (l *Locker) checkSupport(p *Policy) error {
	b := l.backend(p.Backend)
	if b == nil {
		return l.noBackend(p.Backend)
	}
	if p.Sticky > 0 {
		if _, ok := b.(driver.Recaller); !ok {
			return invalidf("the backend %T does not tell when another process waits for a lock that is kept idle, so Sticky can't be kept there; leave it out", b)
		}
	}
	var has driver.Kind
	if k, ok := b.(driver.Kinded); ok {
		has = k.Kinds()
	}
	switch kind := p.kind(); {
	case kind == 0 || has&kind != 0:
		return nil
	case has == 0:
		return invalidf("the backend %T has no %s locks, only mutexes", b, kind)
	default:
		return invalidf("the backend %T has no %s locks, only mutexes and %s", b, kind, has)
	}
}

// backend returns the backend of this name, or nil if there is none.
func (l *Locker) backend(name string) driver.Backend {
	if name == "" {
		return l.own
	}
	b := l.backends[name]
	if b == nil && len(l.backends) == 1 {
		if named, ok := l.own.(driver.Named); ok {
			return named.Named(name)
		}
	}
	return b
}

func (l *Locker) noBackend(name string) error {
	var names []string
	for _, known := range slices.Sorted(maps.Keys(l.backends))[1:] { // the first is the Locker's own, ""
		names = append(names, strconv.Quote(known))
	}
	return invalidf("no backend is named %q in Options.Backends; there are %s", name, cmp.Or(strings.Join(names, ", "), "none"))
}
