package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// member is one of the engines.
type member struct {
	driver.Backend
	name    string
	backend *Backend
	probe   engine.SingleFlight // of fails, beside the probes of watch

	mu        sync.Mutex // guards the rest
	good, bad int        // probes in a row
	err       error      // of the last probe
	id        string     // of its server, if known
}

// watch probes m again and again.
func (m *member) watch(ctx context.Context) {
	t := m.backend.terms
	known := false
	engine.Every(ctx, t.Probe, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, t.Timeout)
		defer cancel()
		err := m.ping(ctx)
		if err == nil && !known {
			known = m.learnServerID(ctx)
		}
		m.noteProbe(err)
	})
}

// ping returns nil if locks can be taken at m.
func (m *member) ping(ctx context.Context) (err error) {
	if p, ok := m.Backend.(driver.Pinger); ok {
		err = p.Ping(ctx)
	} else {
		_, err = m.probeToken(ctx)
	}
	if err != nil {
		return fmt.Errorf("engine %q: %w", m.name, driver.Locate(m.Backend, err))
	}
	return nil
}

// probeToken takes a lock at m that nobody else uses, releases it, and returns its fencing token.
func (m *member) probeToken(ctx context.Context) (uint64, error) {
	b := m.backend
	name := newUUID()
	a := &driver.Acquisition{Key: b.options.Key + ".probe." + name, ID: name + ":1", TTL: b.terms.LongestTTL, Tokens: 1}
	l, err := m.Acquire(ctx, a)
	if err != nil {
		if a.MayHaveRun || errors.Is(err, driver.ErrIndeterminate) {
			b.insist(func(ctx context.Context) error { return m.Undo(ctx, a) })
		}
		return 0, err
	}
	first, _ := l.Tokens()
	b.insist(func(ctx context.Context) error { return l.Release(ctx, first) })
	return first, nil
}

// noteProbe counts a probe.
func (m *member) noteProbe(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err == nil {
		m.good, m.bad = m.good+1, 0
	} else {
		m.good, m.bad = 0, m.bad+1
	}
}

// isUp reports whether the last probes have all succeeded, and isAway whether all have failed.
func (m *member) isUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.good >= m.backend.options.Failures
}

func (m *member) isAway() (away bool, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bad >= m.backend.options.Failures, m.err
}

// fails reports whether the last probe of m has failed, or another one fails. Concurrent callers share that.
// It reports false if ctx ends first.
func (m *member) fails(ctx context.Context) bool {
	if _, err := m.isAway(); err != nil {
		return true
	}
	err := m.probe.Do(ctx, m.backend.group.Life, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, m.backend.terms.Timeout)
		defer cancel()
		return m.ping(ctx)
	})
	return err != nil && ctx.Err() == nil
}

// learnServerID learns the ID of m's server, and refuses two engines with one ID. It reports false if
// it must be called again.
func (m *member) learnServerID(ctx context.Context) bool {
	var id string
	var err error
	switch e := m.Backend.(type) {
	case driver.Incarnated:
		var is driver.Incarnation
		is, err = e.Incarnation(ctx)
		id = is.ID
	case driver.Agreement:
		id, err = engine.KeptID(ctx, e)
	}
	if err != nil || id == "" {
		return err == nil || errors.Is(err, driver.ErrInvalid) // several servers stand behind it
	}
	m.mu.Lock()
	m.id = id
	m.mu.Unlock()
	for _, other := range m.backend.members {
		other.mu.Lock()
		same := other.id == id
		other.mu.Unlock()
		if other != m && same {
			m.backend.group.Refuse("the engines %q and %q are one server, which both reach as %q; give each a server of its own", m.name, other.name, id)
		}
	}
	return true
}

// newUUID returns a random UUID, of version 8.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails, by its documentation
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
