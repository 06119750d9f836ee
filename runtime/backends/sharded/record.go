package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// state is a member's record: which membership it grants by.
type state struct {
	Version uint64   `json:"version"`
	Members []string `json:"members"`
	Before  []string `json:"before,omitempty"` // the members of the version before
	// Waits are the members that may have had keys of this one. All must have the new version
	// before this one is opened.
	Waits []string `json:"waits,omitempty"`
	// Open says that no lease of a key that has moved here can last any more at its former member.
	// Until then the member grants only the keys that it had in the version before.
	Open bool `json:"open"`
}

// owner returns the name that has key: the one with the highest weight for it. A name that is added
// takes keys, and no key moves between the others (rendezvous hashing).
func owner(names []string, key string) (first string) {
	var most uint64
	for _, name := range names {
		if w := engine.Weight(name, key); first == "" || w > most {
			first, most = name, w
		}
	}
	return first
}

// grants reports whether s lets the member of this name, whose record it is, grant key.
func (s state) grants(name, key string) bool {
	return owner(s.Members, key) == name && (s.Open || owner(s.Before, key) == name)
}

// epoch is one state of a member's record that this process has learned of. The member's mutex
// guards what changes: Open, lastLook and next.
type epoch struct {
	state
	learned  driver.Instant // when this process learned of it
	lastLook driver.Instant // when the last look that found it was sent
	next     *epoch         // the following one, or nil
}

// member is one of the engines.
type member struct {
	driver.Backend
	name    string
	backend *Backend
	record  engine.Agreed[state]

	mu         sync.Mutex // guards the rest
	epoch      *epoch     // the latest; nil: none is known, or the record was lost
	recordText string     // what the last look found
	writeErr   error      // of the last try to write the next state of the record
}

// errOutdated says why nobody waits for a missing record: no process of the later version may be left to write it.
var errOutdated = errors.New("this process has an earlier version of the membership, and writes no record")

// watch looks at m's record again and again, and advances it.
func (m *member) watch(ctx context.Context) {
	engine.Every(ctx, m.backend.terms.Probe, func(ctx context.Context) {
		var err error
		if m.record.Ask(ctx, "", nil) == nil {
			err = m.advance(ctx)
		}
		m.mu.Lock()
		m.writeErr = err
		m.mu.Unlock()
	})
}

// learn is called with what a look has found, which was sent at sent.
func (m *member) learn(s state, text string, sent driver.Instant) error {
	b := m.backend
	if text != "" && s.Version == 0 {
		return m.record.Foreign(text)
	}
	if s.Version == b.options.Version && !slices.Equal(s.Members, b.names) {
		b.group.Refuse("version %d of the membership is %q, and this process was given %q; give a change a new Options.Version", s.Version, s.Members, b.names)
	}
	if s.Version > b.options.Version {
		b.outdated.Store(true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recordText = text
	e := m.epoch
	switch {
	case text == "" || e != nil && (s.Version < e.Version || s.Version == e.Version && e.Open && !s.Open):
		m.epoch = nil // the engine has lost the record, and perhaps its locks
		return nil
	case e == nil || s.Version > e.Version || !s.Open && !slices.Equal(s.Before, e.Before): // Before differs if the record was lost and made anew
		e = &epoch{learned: driver.Now()}
		if m.epoch != nil {
			m.epoch.next = e
		}
		m.epoch = e
	}
	e.state, e.lastLook = s, sent
	return nil
}

// known returns a copy of the latest known state of m's record, or nil.
func (m *member) known() *epoch {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.epoch == nil {
		return nil
	}
	e := *m.epoch
	return &e
}

// advance writes the next state of m's record if that is due. If several processes do, one is first. The error
// says why the state was not written.
func (m *member) advance(ctx context.Context) error {
	b := m.backend
	if b.group.Refused() != nil {
		return nil
	}
	if b.outdated.Load() {
		return errOutdated
	}
	m.mu.Lock()
	e, text := m.epoch, m.recordText
	var s state
	if e != nil {
		s = e.state
	}
	m.mu.Unlock()
	mine := state{Version: b.options.Version, Members: b.names}
	switch {
	case e == nil:
		return m.record.Ask(ctx, text, &mine)
	case s.Version < mine.Version:
		if mine.Waits = s.Members; s.Open {
			mine.Before = s.Members
		} else { // another change is under way, or was left unfinished: the member grants nothing until it is opened
			mine.Waits = slices.Concat(s.Members, s.Waits)
		}
		return m.record.Ask(ctx, text, &mine)
	case !s.Open && b.undrained(s) == "":
		s.Open = true
		return m.record.Ask(ctx, text, &s)
	}
	return nil
}

// undrained returns a member at which a key may still be held that is another's by s, a record of this version. It
// returns "" once every member of this version and of the one before has had this version for long enough, and
// was found to have it a moment ago.
func (b *Backend) undrained(s state) string {
	for _, m := range b.withLeaving {
		e := m.known()
		if e == nil || e.Version != s.Version || e.learned.Add(b.terms.Drain()).Left() > 0 || e.lastLook.Add(b.terms.Silence).Left() <= 0 {
			return m.name
		}
	}
	return b.unknownMember(s)
}

// unknownMember returns a member of the version before that this process was not given, or "".
func (b *Backend) unknownMember(s state) string {
	for _, name := range s.Waits {
		if !b.gone[name] && !slices.ContainsFunc(b.withLeaving, func(m *member) bool { return m.name == name }) {
			return name
		}
	}
	return ""
}

// current returns m's record by a look that is not older than Silence. It looks if need be. If there is no
// record the error is [engine.NotYet], unless the last try to make one has failed.
func (m *member) current(ctx context.Context) (*epoch, error) {
	for range 2 {
		m.mu.Lock()
		e := m.epoch
		fresh := e != nil && e.lastLook.Add(m.backend.terms.Silence).Left() > 0
		m.mu.Unlock()
		if fresh {
			return e, nil
		}
		if err := m.record.Look(ctx); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	err := m.writeErr
	m.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the member %q has no record of which keys it has, and none can be made: %w", m.name, err)
	}
	return nil, engine.NotYet(m.backend.terms.Probe, fmt.Sprintf("the member %q has no record of which keys it has; one that has lost it waits for %v, "+
		"and so does the first start, unless Begin is called", m.name, m.backend.terms.Drain()))
}

// Begin opens shards that have never been in use: it makes the record of each member that has
// none, and they grant from then on. Without it the first start waits for LongestTTL and
// Silence, because a missing record may have been lost. It must not be called while any
// process may hold a lock at a member.
func (b *Backend) Begin(ctx context.Context) error {
	if err := b.group.Refused(); err != nil {
		return err
	}
	for _, m := range b.withLeaving {
		s := state{Version: b.options.Version, Members: b.names, Open: true}
		if err := m.record.Ask(ctx, "", &s); err != nil {
			return err
		}
	}
	return nil
}
