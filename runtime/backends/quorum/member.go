package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// silentCalls is how many acquires at once are sent to a member whose last call had no answer.
const silentCalls = 32

// errSilent says that a member was not asked, because others still wait for its answer.
var errSilent = errors.New("it does not answer, and enough calls wait for it")

// member is one of the engines.
type member struct {
	driver.Backend
	name       string
	backend    *Backend
	raiser     driver.TokenRaiser
	base       *base             // the raiser, where the engine has none of its own; else nil
	record     driver.Agreement  // or nil
	incarnated driver.Incarnated // or nil

	silent atomic.Bool   // the last call had no answer
	calls  chan struct{} // one for each acquire that was sent while it was silent
	id     string        // by which it has answered; the backend's mutex guards it
	noted  chan struct{} // closed when the last note has been put; the backend's mutex guards it
}

// acquire makes one attempt at m. While m is silent a call is sent when it has room among
// silentCalls, if decided is not closed before.
func (m *member) acquire(ctx context.Context, a *driver.Acquisition, decided <-chan struct{}) (driver.Lease, error) {
	if m.silent.Load() {
		select {
		case m.calls <- struct{}{}:
			defer func() { <-m.calls }()
		case <-decided:
			return nil, errSilent
		case <-ctx.Done():
			return nil, errSilent
		}
	}
	l, err := m.Backend.Acquire(ctx, a)
	m.silent.Store(!answered(err))
	return l, err
}

// answered reports whether an acquire that ended with err was answered.
func answered(err error) bool {
	return err == nil || engine.HeldBy(err) != nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid)
}

// mayVote returns nil if m is no other member as well, and remembers every lock that it had
// granted when an attempt was sent that it has granted: if it has been up for the longest lease by
// then. It must be called after the grant, so that a start between the two is seen.
func (m *member) mayVote(ctx context.Context, sent driver.Instant) error {
	if m.incarnated == nil {
		return m.introduce(ctx)
	}
	is, err := m.incarnated.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("asked since when it is up: %w", err)
	}
	m.backend.meet(m, is.ID)
	// It started at most is.Age before this instant, and sent is -sent.Left() before it.
	if missing := m.backend.options.LongestTTL - is.Age - sent.Left(); missing > 0 {
		return fmt.Errorf("it may have forgotten locks: it has started %v ago, and votes in %v",
			is.Age.Round(time.Millisecond), missing.Round(time.Millisecond))
	}
	return m.backend.group.Usable() // by the answer it may be another member
}

// meet notes by which ID m has answered. Two members that have the same are one server.
func (b *Backend) meet(m *member, id string) {
	b.mu.Lock() // so that who finds the id finds the refusal
	defer b.mu.Unlock()
	m.id = id
	for _, other := range b.members {
		if other != m && other.id == id {
			b.group.Refuse("the members %q and %q are one server, which both reach as %q; give each a server of its own", m.name, other.name, id)
		}
	}
}

// introduce learns which server m is, unless that is known.
func (m *member) introduce(ctx context.Context) error {
	if m.record == nil {
		return nil
	}
	m.backend.mu.Lock()
	known := m.id != ""
	m.backend.mu.Unlock()
	if known {
		return nil
	}
	id, err := engine.KeptID(ctx, m.record)
	if err != nil {
		return err
	}
	if id == "" { // it keeps no values, as it is configured
		id = "the server of " + m.name
	}
	m.backend.meet(m, id)
	return m.backend.group.Usable()
}

// ping returns nil if m answers, and may vote.
func (m *member) ping(ctx context.Context) error {
	var err error
	if p, ok := m.Backend.(driver.Pinger); ok {
		err = p.Ping(ctx)
	}
	if err == nil {
		err = m.mayVote(ctx, driver.Now())
	}
	if err != nil {
		return fmt.Errorf("member %q: %w", m.name, driver.Locate(m.Backend, err))
	}
	return nil
}
