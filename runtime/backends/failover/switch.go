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

// watch looks at the record again and again, and does what is due by it.
func (b *Backend) watch(ctx context.Context) {
	engine.Every(ctx, b.terms.Probe, func(ctx context.Context) {
		err := b.record.Look(ctx)
		if err == nil {
			err = b.act(ctx)
		}
		b.mu.Lock()
		b.failed = err
		b.mu.Unlock()
	})
}

// act writes the record if that is due. Of several processes that do so one is first, and
// the others find its text. The error is why there is none.
func (b *Backend) act(ctx context.Context) error {
	b.mu.Lock()
	e, fallen, found := b.now, b.fallen, b.found
	var s state
	if e != nil {
		s = e.state
	}
	b.mu.Unlock()
	switch {
	case fallen && e == nil:
		return b.record.Ask(ctx, found, &state{Epoch: 1, Engine: b.members[0].name, Why: "there was no record"})
	case fallen:
		return b.record.Ask(ctx, found, s.next(s.Engine, "the record had been lost"))
	case e.member == nil:
		return nil
	}
	if !s.Open && e.first.Add(b.terms.Drain()).Left() <= 0 {
		_ = b.open(ctx, e)
	}
	_ = b.raiseAhead(ctx, e) // else a grant does
	away, why := e.member.isAway()
	if b.options.ByHand || !away || e.first.Add(b.rest()).Left() > 0 {
		return nil
	}
	for _, m := range b.members {
		if m != e.member && m.isUp() {
			_ = b.decide(ctx, e, m.name, why.Error())
			break
		}
	}
	return nil
}

// rest is how old an epoch must be before a process ends it by itself: so processes that
// differ about who is away can't keep each other from opening one.
func (b *Backend) rest() time.Duration {
	return b.terms.Drain() + time.Duration(b.options.Failures+1)*b.terms.Probe
}

// next is the state by which the engine of this name is to grant.
func (s state) next(engine, why string) *state {
	return &state{Epoch: s.Epoch + 1, Engine: engine, Why: why, Floor: s.Ceiling, Ceiling: s.Ceiling}
}

// decide ends e, and begins the next epoch, unless that has begun or the record is lost.
func (b *Backend) decide(ctx context.Context, e *epoch, engine, why string) error {
	for {
		b.mu.Lock()
		text, s, now := e.text, e.state, b.now == e && !b.fallen
		b.mu.Unlock()
		if !now {
			return nil
		}
		if err := b.record.Ask(ctx, text, s.next(engine, why)); err != nil {
			return err
		}
	}
}

// open has e's engine grant: no lease of an epoch before can last any more. The engine's
// tokens from now on, plus the offset, are above the floor; there is room for its clock to
// be set back by as much as a switch waits.
func (b *Backend) open(ctx context.Context, e *epoch) error {
	ctx, cancel := context.WithTimeout(ctx, b.terms.Timeout)
	defer cancel()
	token, err := e.member.token(ctx)
	if err != nil {
		return fmt.Errorf("engine %q: %w", e.member.name, driver.Locate(e.member.Backend, err))
	}
	b.mu.Lock()
	text, next := e.text, e.state
	b.mu.Unlock()
	if least := next.Floor + b.step(); next.Floor > 0 && token <= least {
		next.Offset = least - token + 1
	}
	next.Open, next.Ceiling = true, token+next.Offset+b.step()
	return b.record.Ask(ctx, text, &next)
}

// Begin opens a failover that has never been in use: it makes the record, if there is none,
// and the primary grants from then on. Without it the first start waits for as long as a
// switch, because a record that is not there may have been lost. It must not be called
// while another process may hold locks by another record or engine.
func (b *Backend) Begin(ctx context.Context) error {
	if err := b.group.Refused(); err != nil {
		return err
	}
	token, err := b.members[0].token(ctx)
	if err != nil {
		return fmt.Errorf("engine %q: %w", b.members[0].name, driver.Locate(b.members[0].Backend, err))
	}
	s := state{Epoch: 1, Engine: b.members[0].name, Open: true, Ceiling: token + b.step(), Why: "it was begun by hand"}
	return b.record.Ask(ctx, "", &s)
}

// Switch has the engine of this name grant, once no lease of the present one can last any
// more: LongestTTL and Silence later, and a fiftieth. It returns when that is decided, and
// does nothing if the engine grants already. An engine that does not answer is an error.
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
		e, fallen := b.now, b.fallen
		b.mu.Unlock()
		if fallen || e == nil {
			return errors.New("failover: there is no record to change yet; it is made within a second")
		}
		if e.member == m {
			return nil
		}
		if err := b.decide(ctx, e, name, "it was switched by hand"); err != nil {
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
	if b.now == nil || b.fallen {
		return Status{}, errors.New("failover: there is no record yet")
	}
	s := b.now.state
	return Status{s.Engine, s.Epoch, s.Open, s.Why}, nil
}
