package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// maxSilentCalls bounds the acquires under way at a member that did not answer the last call.
const maxSilentCalls = 32

// errSilent says that a member was not asked, because earlier calls still wait for its answer.
var errSilent = errors.New("it does not answer, and enough calls wait for it")

// errForgetful says that a member may not vote yet.
var errForgetful = errors.New("it may have forgotten locks")

// member is one of the engines.
type member struct {
	driver.Backend
	name       string
	backend    *Backend
	raiser     driver.TokenRaiser
	base       *tokenBase        // the raiser, if the engine has none of its own; else nil
	record     driver.Agreement  // or nil
	incarnated driver.Incarnated // or nil

	silent      atomic.Bool    // the last call had no answer
	silentCalls chan struct{}  // holds one value for each acquire that was sent while the member was silent
	id          string         // of its server, once known; the backend's mutex guards it
	votesAt     driver.Instant // when it may vote, by its last answer that it may not yet; the backend's mutex guards it
	lastNote    chan struct{}  // closed when the last note has been put; the backend's mutex guards it
}

// acquire makes one attempt at m. While m is silent it waits until fewer than maxSilentCalls are
// under way, and gives up once the vote is decided.
func (m *member) acquire(ctx context.Context, a *driver.Acquisition, decided <-chan struct{}) (driver.Lease, error) {
	if m.silent.Load() {
		select {
		case m.silentCalls <- struct{}{}:
			defer func() { <-m.silentCalls }()
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

// mayVote returns nil if m shares its server with no other member, and may vote on an attempt that was sent
// at sent: it had been up for the longest lease by then, and so remembers every lock that it had granted.
// It must be called after m's grant, so that a restart between the two is seen.
func (m *member) mayVote(ctx context.Context, sent driver.Instant) error {
	if m.incarnated == nil {
		return m.learnServerID(ctx)
	}
	is, err := m.incarnated.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("asked since when it is up: %w", err)
	}
	m.backend.noteServerID(m, is.ID)
	// It started at most is.Age before this instant, and sent is -sent.Left() before it.
	if missing := m.backend.options.LongestTTL - is.Age - sent.Left(); missing > 0 {
		m.backend.withLock(func() { m.votesAt = driver.Now().Add(missing) })
		return fmt.Errorf("%w: it has started %v ago, and votes in %v", errForgetful,
			is.Age.Round(time.Millisecond), missing.Round(time.Millisecond))
	}
	return m.backend.group.Usable() // by its ID it may be one with another member
}

// untilVote returns how long it is until a majority may vote, as far as is known; 0 or less if it may now.
func (b *Backend) untilVote() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []time.Duration
	for _, m := range b.members {
		left = append(left, m.votesAt.Left())
	}
	slices.Sort(left)
	return left[b.majority-1]
}

// noteServerID notes the ID of m's server. Two members with one ID are refused.
func (b *Backend) noteServerID(m *member, id string) {
	b.mu.Lock() // until the refusal is set, so that a call that finds the id finds the refusal too
	defer b.mu.Unlock()
	m.id = id
	for _, other := range b.members {
		if other != m && other.id == id {
			b.group.Refuse("the members %q and %q are one server, which both reach as %q; give each a server of its own", m.name, other.name, id)
		}
	}
}

// learnServerID learns the ID of m's server, unless that is known.
func (m *member) learnServerID(ctx context.Context) error {
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
	if id == "" { // it keeps no values, by its configuration
		id = "the server of " + m.name
	}
	m.backend.noteServerID(m, id)
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
