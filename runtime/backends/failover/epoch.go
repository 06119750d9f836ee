package failover

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// state is the record: which engine grants.
type state struct {
	Epoch  uint64 `json:"epoch"`  // rises with each decision
	Engine string `json:"engine"` // the name of the engine that grants
	Open   bool   `json:"open"`   // no lease of an earlier epoch can last any more
	Why    string `json:"why,omitempty"`

	// Tokens of the epoch are the engine's plus Offset. They are above Floor, and those of earlier epochs
	// are not. They are not above Ceiling, which is raised before they are handed out.
	Offset  uint64 `json:"offset,omitempty"`
	Floor   uint64 `json:"floor,omitempty"`
	Ceiling uint64 `json:"ceiling,omitempty"`
}

// epoch is what this process knows of one epoch of the record. The Backend's mutex guards what
// changes: lastLook, Open, Ceiling, text, lastToken and lastTokenAt.
type epoch struct {
	state
	text     string
	member   *member         // nil: no engine here has the name
	ctx      context.Context // ends with the epoch
	end      context.CancelFunc
	learned  driver.Instant // when this process learned of it
	lastLook driver.Instant // when the last look that found it was sent

	lastToken   uint64         // the highest that this process was granted in it; 0: none
	lastTokenAt driver.Instant // when that was
}

// Status is what the record says.
type Status struct {
	Engine string // which one grants, or will
	Epoch  uint64 // how often that was decided
	Open   bool   // it grants; else it waits until no lease of another engine can last
	Why    string // the reason of the last switch
}

// learn is called with what a look has found, which was sent at sent.
func (b *Backend) learn(s state, text string, sent driver.Instant) error {
	if text != "" && s.Epoch == 0 {
		return b.record.Foreign(text)
	}
	if b.noteState(s, text, sent) && b.options.OnSwitch != nil {
		b.options.OnSwitch(Status{s.Engine, s.Epoch, s.Open, s.Why})
	}
	return nil
}

// noteState notes that a look which was sent at sent has found s. It reports whether a switch has begun
// or ended.
func (b *Backend) noteState(s state, text string, sent driver.Instant) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.epoch
	b.recordText, b.recordErr = text, nil
	b.recordLost = text == "" || e != nil && s.isBefore(e.state)
	if b.recordLost {
		return false
	}
	changed = e == nil || s.Epoch > e.Epoch || s.Open != e.Open
	if e == nil || s.Epoch > e.Epoch {
		e = b.beginEpochLocked(s)
	}
	e.state, e.text, e.lastLook = s, text, sent
	return changed
}

// isBefore reports whether s is older than known, which was read before: then a write was lost.
func (s state) isBefore(known state) bool {
	if s.Epoch != known.Epoch {
		return s.Epoch < known.Epoch
	}
	return s.Engine != known.Engine || known.Open && !s.Open || s.Ceiling < known.Ceiling
}

// beginEpochLocked begins the epoch of s. It gives up the places in the queues of the old engine. Undo
// goes there too until no attempt there can matter any more.
func (b *Backend) beginEpochLocked(s state) *epoch {
	e := &epoch{state: s, learned: driver.Now()}
	e.ctx, e.end = context.WithCancel(b.group.Life.Context())
	for _, m := range b.members {
		if m.name == s.Engine {
			e.member = m
		}
	}
	old := b.epoch
	b.epoch, b.openErr = e, nil
	if old == nil {
		return e
	}
	old.end()
	if m := old.member; m != nil && m != e.member {
		b.former[m] = e.learned.Add(2 * b.terms.Drain())
		for _, a := range b.waiting {
			b.insist(func(ctx context.Context) error { return m.Undo(ctx, &a) })
		}
		clear(b.waiting)
	}
	return e
}

// current returns the epoch by which locks can be taken now. While it is not open the error is
// [engine.NotYet].
func (b *Backend) current(ctx context.Context) (*epoch, error) {
	for {
		e, err := b.lastKnown()
		if e != nil || err != nil {
			return e, err
		}
		if err := b.record.Look(ctx); err != nil {
			return nil, err
		}
	}
}

// lastKnown is current without a look at the record. Both results are nil if a look is needed.
func (b *Backend) lastKnown() (e *epoch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e = b.epoch
	switch {
	case b.recordLost && b.recordErr != nil:
		err = fmt.Errorf("the record of which engine grants, %q, is not there, and can't be made: %w", b.options.Key, b.recordErr)
	case b.recordLost: // the record is about to be written
		err = engine.NotYet(b.terms.Probe, fmt.Sprintf("the record of which engine grants, %q, is not there; one that has lost it waits for %v, "+
			"and so does the first start, unless Begin is called", b.options.Key, b.terms.Drain()))
	case e == nil || e.lastLook.Add(b.terms.Silence).Left() <= 0:
		return nil, nil
	case e.member == nil:
		err = fmt.Errorf("%w: failover: the engine %q grants, which this process was not given; give all processes the same", driver.ErrInvalid, e.Engine)
	case !e.Open:
		left := max(e.learned.Add(b.terms.Drain()).Left(), 0) + b.terms.Probe
		why := fmt.Sprintf("the failover waits until no lease of the engine before can last: for %v", left.Round(time.Millisecond))
		if b.openErr != nil {
			why = fmt.Sprintf("no lease of the engine before can last, but the next one can't grant yet: %v", b.openErr)
		}
		err = engine.NotYet(left, why)
	default:
		return e, nil
	}
	return nil, err
}

// raiseCeiling raises the record's ceiling to last, a token of e, or higher.
func (b *Backend) raiseCeiling(ctx context.Context, e *epoch, last uint64) error {
	for {
		b.mu.Lock()
		current, text, next := b.epoch == e && !b.recordLost, e.text, e.state
		b.mu.Unlock()
		switch {
		case !current:
			return errSwitched
		case last <= next.Ceiling:
			return nil
		}
		next.Ceiling = last + b.ceilingStep()
		if err := b.ceilingRaises.Do(ctx, b.group.Life, func(ctx context.Context) error { return b.record.Ask(ctx, text, &next) }); err != nil {
			return err
		}
	}
}

// raiseCeilingAhead raises e's ceiling before a grant needs it: above the tokens that a clock can reach
// while the record may stay unread.
func (b *Backend) raiseCeilingAhead(ctx context.Context, e *epoch) error {
	b.mu.Lock()
	last, since := e.lastToken, e.lastTokenAt
	b.mu.Unlock()
	if last == 0 {
		return nil
	}
	t := b.terms
	return b.raiseCeiling(ctx, e, last+clockTokens(driver.Now().Sub(since)+t.Silence+t.Probe+t.Timeout))
}

// ceilingStep is how far the ceiling is raised at once: by the tokens that a clock counts in a quarter of
// the time that a switch waits. So after a switch the tokens of a clock are above the ceiling.
func (b *Backend) ceilingStep() uint64 {
	return clockTokens(b.terms.Drain() / 4)
}

// clockTokens returns how many tokens a clock counts in d.
func clockTokens(d time.Duration) uint64 {
	return uint64(d.Microseconds()) * driver.TokensPerMicrosecond
}
