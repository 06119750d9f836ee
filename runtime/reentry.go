package lock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// frame is one entry of one call into a hold: the outermost acquire or a
// re-entry. Frames form the chain of what a context owns.
type frame struct {
	current atomic.Pointer[hold] // another one after each Cond.Wait
	outer   *frame               // what the caller's context owned
	ctx     *ownedContext        // of the call; in an AcquireAll only the innermost frame has one
	several bool                 // it is the innermost of an AcquireAll
	closed  atomic.Bool
	inner   atomic.Pointer[reentrySlot] // made with the first re-entry
}

func (f *frame) hold() *hold { return f.current.Load() }

// find returns the innermost frame of the chain that entered l's lock on key, or
// a delegated lock on it. It returns nil if there is none, or if its call, or one
// around it, has returned.
func (f *frame) find(l *Locker, backend, key string) *frame {
	for ; f != nil; f = f.outer {
		h := f.hold()
		if h.entry.id.key == key && h.entry.id.backend == backend && h.canBeEnteredBy(l) {
			if f.returned() {
				return nil
			}
			return f
		}
	}
	return nil
}

// findAt returns the innermost frame of the chain that entered a lock on key, or nil. It
// looks at the locks of backends; without backends, at all.
func (f *frame) findAt(key string, backends []string) *frame {
	for ; f != nil; f = f.outer {
		id := f.hold().entry.id
		if id.key == key && (len(backends) == 0 || slices.Contains(backends, id.backend)) {
			return f
		}
	}
	return nil
}

// heldElsewhere reports whether the chain holds the lock on key of b by another Locker
// than l, so that waiting for it would never end. It can't tell that two Backends are at
// one engine.
func (f *frame) heldElsewhere(l *Locker, b driver.Backend, key string) bool {
	for ; f != nil; f = f.outer {
		h := f.hold()
		if h.locker == l || h.locker == nil || h.locker.prefix+h.entry.id.key != l.prefix+key {
			continue
		}
		if !f.returned() && h.lostCause() == nil && sameBackend(h.entry.backend, b) {
			return true
		}
	}
	return false
}

// sameBackend reports whether a and b are one. It reports false for types that can't be compared.
func sameBackend(a, b driver.Backend) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// reenter enters the hold of f once more, for a nested call under ctx, which
// owns outer. It sends nothing. While another re-entry of the same frame runs
// (by a goroutine with the same context), it waits as for a mutex.
func (f *frame) reenter(ctx context.Context, outer *frame, p *Policy, end time.Time) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, ctxEnded(ctx)
	}
	if err := f.hold().checkReentry(p); err != nil {
		return nil, err
	}
	slot := f.slot()
	if err := slot.enter(ctx, p, end); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		slot.leave()
		return nil, because(ErrLost, err)
	}
	if h := f.hold(); h.lease.downgraded.Load() { // maybe since checkReentry above
		if err := h.checkReentry(p); err != nil {
			slot.leave()
			return nil, err
		}
	}
	x := &entering{}
	x.frame.current.Store(f.hold())
	x.frame.outer, x.frame.ctx = outer, &x.owned
	x.owned = ownedContext{Context: ctx, frame: &x.frame}
	x.held = Hold{frame: &x.frame, parent: f}
	return &x.held, nil
}

// slot returns the reentrySlot of f: at most one re-entry of a frame runs at a time.
func (f *frame) slot() reentrySlot {
	if f.inner.Load() == nil {
		slot := make(reentrySlot, 1)
		f.inner.CompareAndSwap(nil, &slot)
	}
	return *f.inner.Load()
}

// returned reports whether the call of f, or one around it that entered the
// same hold, has returned. A nested call that outlives either is inside no lock.
func (f *frame) returned() bool {
	for g := f; g != nil; g = g.outer {
		if g.hold() == f.hold() && g.closed.Load() {
			return true
		}
	}
	return false
}

// outermost returns the frame that acquired f's hold, and releases it.
func (f *frame) outermost() (first *frame) {
	for g := f; g != nil; g = g.outer {
		if g.hold() == f.hold() {
			first = g
		}
	}
	return first
}

// check returns why a call under f is inside no lock, or nil.
func (f *frame) check() error {
	if f.returned() {
		return errReturned
	}
	return f.hold().check()
}

// reentrySlot admits one re-entry at a time, first come first served, for goroutines
// that share one frame. It has room for one.
type reentrySlot chan struct{}

// enter takes the reentrySlot. The zero end waits until ctx ends.
func (s reentrySlot) enter(ctx context.Context, p *Policy, end time.Time) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	if p.Try {
		return because(ErrNotAcquired, errHeldHere)
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctxEnded(ctx)
	case <-timerAt(end):
		return waitOver(p)
	}
}

func (s reentrySlot) leave() { <-s }

// whileHolding adds to err the locks that the call under ctx holds, if it did not get another. If two
// calls take two locks in opposite orders, the error of each shows the key that the other waits for.
func whileHolding(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNotAcquired) {
		return err
	}
	if keys := owned(ctx).keys(); len(keys) > 0 {
		return fmt.Errorf("%w, while this call holds %s", err, strings.Join(keys, ", "))
	}
	return err
}

// keys returns the locks of the chain, the innermost first, each once.
func (f *frame) keys() (keys []string) {
	for ; f != nil; f = f.outer {
		key := f.hold().entry.id.key
		if f.check() != nil || slices.Contains(keys, key) {
			continue
		}
		if len(keys) == namedLocks {
			return append(keys, "...")
		}
		keys = append(keys, key)
	}
	return keys
}
