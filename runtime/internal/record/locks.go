package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Acquire is [driver.Backend.Acquire] for a Mode other than the mutex.
func (l *Locks) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	var err error
	p, began, leave := partyOf(a), driver.Now(), func() {}
	if l.clockless {
		p.Tokens = min(p.Tokens, 1<<engine.TokenBits)
	}
	if a.Queue && !a.MayBeGranted { // not in the queue yet: of concurrent writes one succeeds, and each other costs a request
		leave, err = l.arrivals.Enter(ctx, a.Key)
	}
	v, mayHaveRun := l.lastSeen(a.Key), false
	if err == nil {
		defer leave()
		v, mayHaveRun, err = l.update(ctx, Write{Key: a.Key, Takes: true, Waits: a.Queue}, func(s *State, now Time) (bool, error) {
			if err := s.conflict(p); err != nil {
				return false, err
			}
			if s.isDone(p.Tick) && s.holder(p.ID) == nil {
				return false, driver.ErrDone
			}
			if inside := s.holder(p.ID); inside != nil && inside.Until > now && (l.renewsGrants || p.Kind != kindCondition && inside.Until < now+Time(inside.Grant/2)) {
				// A lease that was granted from the queue is short, and may have begun a while ago.
				s.expire(now)
				s.holder(p.ID).Until = After(a.TTL.Microseconds())
				return true, nil
			}
			if p.Kind == kindCondition && a.MayBeGranted && find(s.Queue, p.ID) < 0 {
				if called := s.holder(p.ID); called == nil || called.Until <= now {
					// The waiter did not see its signal in time, and its lease is over. It is
					// granted a new lease, because a signal must not be lost.
					s.expire(now)
					s.enter(p, now, p.Grant)
					return true, nil
				}
			}
			return s.arrive(p, now, a.TTL.Microseconds(), a.Queue), nil
		})
	}
	a.MayHaveRun = a.MayHaveRun || mayHaveRun
	switch {
	case err != nil && errors.Is(err, ctx.Err()) && !v.at.Before(began) && v.at.Left() > -2*time.Second &&
		v.state.holder(p.ID) == nil && (v.fresh && !mayHaveRun || v.state.mustWait(p)):
		return nil, v.held(p) // the engine has answered, but other writers were faster until ctx ended
	case err != nil && mayHaveRun && !errors.Is(err, driver.ErrConflict) && !errors.Is(err, driver.ErrDone) && !errors.Is(err, driver.ErrIndeterminate):
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	case err != nil:
		return nil, err
	}
	if p := v.state.holder(a.ID); p != nil {
		return l.newLease(a, p, v), nil
	}
	a.MayBeGranted = a.MayBeGranted || a.Queue
	return nil, v.held(p)
}

func partyOf(a *driver.Acquisition) Party {
	p := Party{ID: a.ID, Kind: a.Mode.Kind.String(), Grant: min(a.TTL, grantLease).Microseconds(), Tick: Text(a.Mode.Tick), Name: Text(a.Mode.Name)}
	if a.NoRenewal {
		p.Grant = a.TTL.Microseconds()
	}
	if a.Tokens > 1 && a.Mode.Kind != driver.Read {
		p.Tokens = a.Tokens
	}
	if a.Mode.Kind == driver.Permits {
		p.Weight, p.Limit = a.Mode.Weight, a.Mode.Permits
	}
	return p
}

// held returns the error for p, which can't come in. It contains the first holder, the time until
// the first of all leases ends, and the smallest Limit of a holder that differs from p's. If there
// is no holder, p waits for a condition to be signalled.
func (v view) held(p Party) *driver.HeldError {
	held := &driver.HeldError{}
	for i, other := range v.state.In {
		left := max(other.Until.left(v.now), time.Millisecond)
		if i == 0 {
			held.Holder, held.RetryAfter = other.ID, left
		}
		held.RetryAfter = min(held.RetryAfter, left)
		if other.Limit != p.Limit && (held.Permits == 0 || other.Limit < held.Permits) {
			held.Permits = other.Limit
		}
	}
	return held
}

// Undo is [driver.Backend.Undo].
func (l *Locks) Undo(ctx context.Context, a *driver.Acquisition) error {
	_, _, err := l.update(ctx, Write{Key: a.Key}, func(s *State, now Time) (bool, error) {
		inside, anywhere := s.remove(a.ID, now)
		if inside {
			s.callNext(1, now) // it was called, and gives up
		}
		s.keep(a.MayHaveRun, a.TTL)
		return anywhere || a.MayHaveRun, nil
	})
	if errors.Is(err, driver.ErrConflict) {
		return nil // the value at the key is not of this acquisition
	}
	return err
}

// AllKinds are the kinds of lock that records keep.
const AllKinds = driver.Read | driver.Write | driver.Fair | driver.Permits | driver.Condition | driver.Once

// Methods is embedded by a Backend to be a [driver.Viewer] and a [driver.Caller].
type Methods struct{ locks *Locks }

// Methods returns the Methods of l.
func (l *Locks) Methods() Methods { return Methods{l} }

// View implements [driver.Viewer].
func (m Methods) View(ctx context.Context, a *driver.Acquisition) (holder *driver.Holder, err error) {
	v, _, err := m.locks.update(ctx, Write{Key: a.Key}, func(s *State, now Time) (bool, error) { return false, s.conflict(partyOf(a)) })
	if err != nil {
		return nil, err
	}
	for _, p := range v.state.In {
		if left := p.Until.left(v.now); left > 0 {
			return &driver.Holder{ID: p.ID, Name: string(p.Name), Token: uint64(p.Token), Left: left}, nil
		}
	}
	return nil, nil
}

// Call implements [driver.Caller].
func (m Methods) Call(ctx context.Context, a *driver.Acquisition, n int) error {
	_, _, err := m.locks.update(ctx, Write{Key: a.Key}, func(s *State, now Time) (bool, error) {
		if err := s.conflict(partyOf(a)); err != nil {
			return false, err
		}
		expired := s.expire(now)
		return s.call(n, now) || expired, nil
	})
	return err
}

// keep makes the record outlast an attempt that had no answer.
func (s *State) keep(mayHaveRun bool, ttl time.Duration) {
	if mayHaveRun {
		s.Keep = After((ttl + tombstoneMargin).Microseconds())
	}
}

// valueLasts is how long after its last write an engine with a clock keeps a value on which
// processes agree: practically for ever.
const valueLasts = 10 * 365 * 24 * time.Hour

type methods = Methods // unexported, so that a Register has no exported field

// Register is Methods for a Backend that is also a [driver.Agreement].
type Register struct{ methods }

// Register returns the Register of l.
func (l *Locks) Register() Register { return Register{l.Methods()} }

// CompareAndSwap implements [driver.Agreement].
func (r Register) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	v, _, err := r.locks.update(ctx, Write{Key: key, Takes: old != next, Waits: old != next}, func(s *State, _ Time) (bool, error) {
		if len(s.In)+len(s.Queue) > 0 {
			return false, Beside("a lock", "a value")
		}
		if string(s.Value) != old || old == next {
			return false, nil
		}
		s.Value = Text(next)
		return true, nil
	})
	return string(v.state.Value), err
}

// idle reports whether nothing in s is in use. The record may still have to be kept: see keep.
func (s *State) idle() bool { return len(s.In)+len(s.Queue)+len(s.Done) == 0 && s.Value == "" }
