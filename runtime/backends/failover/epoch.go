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
	Epoch  uint64 `json:"epoch"`  // how often it was decided
	Engine string `json:"engine"` // its name
	Open   bool   `json:"open"`   // no lease of an epoch before can last any more
	Why    string `json:"why,omitempty"`

	// Tokens of the epoch are the engine's plus Offset. All are above Floor, no token of an
	// epoch before is, and none is above Ceiling, which rises before they do.
	Offset  uint64 `json:"offset,omitempty"`
	Floor   uint64 `json:"floor,omitempty"`
	Ceiling uint64 `json:"ceiling,omitempty"`
}

// epoch is what this process knows of one. The Backend's mutex guards what changes: looked,
// Open, Ceiling, text, last and granted.
type epoch struct {
	state
	text   string
	member *member         // nil: no engine here has the name
	ctx    context.Context // ends with the epoch
	end    context.CancelFunc
	first  driver.Instant // when this process learned of it
	looked driver.Instant // from before the last look that found it was sent

	last    uint64         // token that this process has had of it; 0: none
	granted driver.Instant // when
}

// Status is what the record says.
type Status struct {
	Engine string // which one grants, or will
	Epoch  uint64 // how often it was decided
	Open   bool   // it grants; before, it waits until no lease of another engine can last
	Why    string // the reason of the last switch
}

// learn notes what a look found that was sent at this instant.
func (b *Backend) learn(s state, text string, sent driver.Instant) error {
	if text != "" && s.Epoch == 0 {
		return b.record.Foreign(text)
	}
	if b.noteState(s, text, sent) && b.options.OnSwitch != nil {
		b.options.OnSwitch(Status{s.Engine, s.Epoch, s.Open, s.Why})
	}
	return nil
}

// noteState notes that a look which was sent at this instant has found s. It reports whether that is
// a switch, or the end of one.
func (b *Backend) noteState(s state, text string, sent driver.Instant) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.now
	b.found = text
	b.fallen = text == "" || e != nil && s.isBefore(e.state)
	if b.fallen {
		return false
	}
	news = e == nil || s.Epoch > e.Epoch || s.Open != e.Open
	if e == nil || s.Epoch > e.Epoch {
		e = b.enterLocked(s)
	}
	e.state, e.text, e.looked = s, text, sent
	return news
}

// isBefore reports whether s was the record before known was: the Record has lost a write.
func (s state) isBefore(known state) bool {
	if s.Epoch != known.Epoch {
		return s.Epoch < known.Epoch
	}
	return s.Engine != known.Engine || known.Open && !s.Open || s.Ceiling < known.Ceiling
}

// enterLocked begins an epoch. The places in the queues of the engine before are given up; what was asked
// there is undone there as long as it can matter.
func (b *Backend) enterLocked(s state) *epoch {
	e := &epoch{state: s, first: driver.Now()}
	e.ctx, e.end = context.WithCancel(b.group.Life.Context())
	for _, m := range b.members {
		if m.name == s.Engine {
			e.member = m
		}
	}
	old := b.now
	b.now = e
	if old == nil {
		return e
	}
	old.end()
	if m := old.member; m != nil && m != e.member {
		b.former[m] = e.first.Add(2 * b.terms.Drain())
		for _, a := range b.waiting {
			b.insist(func(ctx context.Context) error { return m.Undo(ctx, &a) })
		}
		clear(b.waiting)
	}
	return e
}

// current returns the epoch by which locks can be taken now: as long as it is not open,
// [engine.NotYet].
func (b *Backend) current(ctx context.Context) (*epoch, error) {
	for {
		e, err := b.known()
		if e != nil || err != nil {
			return e, err
		}
		if err := b.record.Look(ctx); err != nil {
			return nil, err
		}
	}
}

// known is current without a look: both nil if one is needed.
func (b *Backend) known() (e *epoch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e = b.now
	switch {
	case b.fallen && b.failed != nil:
		err = fmt.Errorf("the record of which engine grants, %q, is not there, and can't be made: %w", b.options.Key, b.failed)
	case b.fallen: // the record is about to be written
		err = engine.NotYet(b.terms.Probe, fmt.Sprintf("the record of which engine grants, %q, is not there; the first start of a failover waits for %v, "+
			"and so does one that has lost its record", b.options.Key, b.terms.Drain()))
	case e == nil || e.looked.Add(b.terms.Silence).Left() <= 0:
		return nil, nil
	case e.member == nil:
		err = fmt.Errorf("%w: failover: the engine %q grants, which this process was not given; give all processes the same", driver.ErrInvalid, e.Engine)
	case !e.Open:
		left := max(e.first.Add(b.terms.Drain()).Left(), 0) + b.terms.Probe
		err = engine.NotYet(left, fmt.Sprintf("the failover waits until no lease of the engine before can last: for %v", left.Round(time.Millisecond)))
	default:
		return e, nil
	}
	return nil, err
}

// cover sees to it that the record's ceiling is at or above last, a token of e.
func (b *Backend) cover(ctx context.Context, e *epoch, last uint64) error {
	for {
		b.mu.Lock()
		now, text, next := b.now == e && !b.fallen, e.text, e.state
		b.mu.Unlock()
		switch {
		case !now:
			return errSwitched
		case last <= next.Ceiling:
			return nil
		}
		next.Ceiling = last + b.step()
		if err := b.raises.Do(ctx, b.group.Life, func(ctx context.Context) error { return b.record.Ask(ctx, text, &next) }); err != nil {
			return err
		}
	}
}

// raiseAhead has e's ceiling rise before a grant needs it: above what a clock counts as long as the
// record may stay unread.
func (b *Backend) raiseAhead(ctx context.Context, e *epoch) error {
	b.mu.Lock()
	last, since := e.last, e.granted
	b.mu.Unlock()
	if last == 0 {
		return nil
	}
	t := b.terms
	return b.cover(ctx, e, last+counted(driver.Now().Sub(since)+t.Silence+t.Probe+t.Timeout))
}

// step is by how much the ceiling rises at once: by what a clock counts in a quarter of the
// time that a switch waits, so that tokens which a clock counts are above the ceiling after it.
func (b *Backend) step() uint64 {
	return counted(b.terms.Drain() / 4)
}

// counted returns how many tokens a clock counts in d.
func counted(d time.Duration) uint64 {
	return uint64(d.Microseconds()) * driver.TokensPerMicrosecond
}
