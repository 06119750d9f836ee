package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// errSwitched is why a lease is not renewed: it lasts until its deadline.
var errSwitched = errors.New("another engine grants now; the lease is not renewed and lasts until its deadline")

// watch looks at the record again and again, and advances it.
func (b *Backend) watch(ctx context.Context) {
	engine.Every(ctx, b.terms.Probe, func(ctx context.Context) {
		err := b.record.Look(ctx)
		if err == nil {
			err = b.advance(ctx)
		}
		b.mu.Lock()
		b.recordErr = err
		b.mu.Unlock()
	})
}

// advance writes the next state of the record if that is due. If several processes do, one is
// first, and the others learn its state. The error is why a lost record can't be made anew.
func (b *Backend) advance(ctx context.Context) error {
	b.mu.Lock()
	e, lost, text := b.epoch, b.recordLost, b.recordText
	var s state
	if e != nil {
		s = e.state
	}
	b.mu.Unlock()
	switch {
	case lost && e == nil:
		return b.record.Ask(ctx, text, &state{Epoch: 1, Engine: b.members[0].name, Why: "there was no record"})
	case lost:
		return b.record.Ask(ctx, text, s.next(s.Engine, "the record had been lost"))
	case e.member == nil:
		return nil
	}
	if !s.Open && e.learned.Add(b.terms.Drain()).Left() <= 0 {
		err := b.open(ctx, e)
		b.mu.Lock()
		if b.epoch == e {
			b.openErr = err
		}
		b.mu.Unlock()
	}
	_ = b.raiseCeilingAhead(ctx, e) // if it fails, the next grant raises it
	away, why := e.member.isAway()
	if b.options.ByHand || !away || e.learned.Add(b.minEpochAge()).Left() > 0 {
		return nil
	}
	for _, m := range b.members {
		if m != e.member && m.isUp() {
			_ = b.switchTo(ctx, e, m.name, why.Error())
			break
		}
	}
	return nil
}

// minEpochAge is how old an epoch must be before a process ends it because of probes: else processes
// that differ about which engine is away could keep each other from opening one.
func (b *Backend) minEpochAge() time.Duration {
	return b.terms.Drain() + time.Duration(b.options.Failures+1)*b.terms.Probe
}

// next returns the state after s, in which the engine of this name is to grant.
func (s state) next(engine, why string) *state {
	return &state{Epoch: s.Epoch + 1, Engine: engine, Why: why, Floor: s.Ceiling, Ceiling: s.Ceiling}
}

// switchTo ends e, and begins the next epoch, unless that has begun or the record is lost.
func (b *Backend) switchTo(ctx context.Context, e *epoch, engine, why string) error {
	for {
		b.mu.Lock()
		text, s, current := e.text, e.state, b.epoch == e && !b.recordLost
		b.mu.Unlock()
		if !current {
			return nil
		}
		if err := b.record.Ask(ctx, text, s.next(engine, why)); err != nil {
			return err
		}
	}
}

// open opens e, when no lease of an earlier epoch can last any more. It sets the offset so that the
// engine's tokens from now on are above the floor, even if its clock is set back by a quarter of the
// time that a switch waits.
func (b *Backend) open(ctx context.Context, e *epoch) error {
	ctx, cancel := context.WithTimeout(ctx, b.terms.Timeout)
	defer cancel()
	token, err := e.member.probeToken(ctx)
	if err != nil {
		return fmt.Errorf("engine %q: %w", e.member.name, driver.Locate(e.member.Backend, err))
	}
	b.mu.Lock()
	text, next := e.text, e.state
	b.mu.Unlock()
	if least := next.Floor + b.ceilingStep(); next.Floor > 0 && token <= least {
		next.Offset = least - token + 1
	}
	next.Open, next.Ceiling = true, token+next.Offset+b.ceilingStep()
	return b.record.Ask(ctx, text, &next)
}

// Begin opens a failover that has never been in use: it makes the record, if there is none,
// and the primary grants from then on. Without it the first start waits for as long as a
// switch, because a missing record may have been lost. It must not be called
// while another process may hold locks by another record or engine.
func (b *Backend) Begin(ctx context.Context) error {
	if err := b.group.Refused(); err != nil {
		return err
	}
	token, err := b.members[0].probeToken(ctx)
	if err != nil {
		return fmt.Errorf("engine %q: %w", b.members[0].name, driver.Locate(b.members[0].Backend, err))
	}
	s := state{Epoch: 1, Engine: b.members[0].name, Open: true, Ceiling: token + b.ceilingStep(), Why: "it was begun by hand"}
	return b.record.Ask(ctx, "", &s)
}

// Switch makes the engine of this name grant, once no lease of the present one can last any
// more: after LongestTTL and Silence, and a fiftieth of these. It returns when that is decided,
// and does nothing if the engine grants already. It is an error if the engine does not answer.
// Call it in one process; all follow.
func (b *Backend) Switch(ctx context.Context, name string) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	for _, m := range b.members {
		if m.name != name {
			continue
		}
		if err := m.ping(ctx); err != nil {
			return err
		}
		if err := b.record.Ask(ctx, "", nil); err != nil {
			return err
		}
		b.mu.Lock()
		e, lost := b.epoch, b.recordLost
		b.mu.Unlock()
		if lost || e == nil {
			return errors.New("failover: there is no record to change yet; it is made within a second")
		}
		if e.member == m {
			return nil
		}
		if err := b.switchTo(ctx, e, name, "it was switched by hand"); err != nil {
			return err
		}
		if b.granting() != m {
			return errors.New("failover: something else was decided meanwhile, or the record was lost; see Status, and switch again")
		}
		return nil
	}
	return fmt.Errorf("%w: failover: no engine is named %q; there are %q", driver.ErrInvalid, name, b.options.Names)
}

// Status returns what the record says, by a look at it.
func (b *Backend) Status(ctx context.Context) (Status, error) {
	if err := b.group.Usable(); err != nil {
		return Status{}, err
	}
	if err := b.record.Ask(ctx, "", nil); err != nil {
		return Status{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epoch == nil || b.recordLost {
		return Status{}, errors.New("failover: there is no record yet")
	}
	s := b.epoch.state
	return Status{s.Engine, s.Epoch, s.Open, s.Why}, nil
}
