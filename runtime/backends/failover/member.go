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

	mu        sync.Mutex // guards the rest
	good, bad int        // probes in a row
	err       error      // of the last
	id        string     // of its server, if it has told
}

// watch probes m again and again.
func (m *member) watch(ctx context.Context) {
	t := m.backend.terms
	met := false
	engine.Every(ctx, t.Probe, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, t.Timeout)
		defer cancel()
		err := m.ping(ctx)
		if err == nil && !met {
			met = m.meet(ctx)
		}
		m.note(err)
	})
}

// ping returns nil if locks can be taken at m.
func (m *member) ping(ctx context.Context) (err error) {
	if p, ok := m.Backend.(driver.Pinger); ok {
		err = p.Ping(ctx)
	} else {
		_, err = m.token(ctx)
	}
	if err != nil {
		return fmt.Errorf("engine %q: %w", m.name, driver.Locate(m.Backend, err))
	}
	return nil
}

// token takes a lock of its own at m, frees it, and returns its fencing token.
func (m *member) token(ctx context.Context) (uint64, error) {
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

// note counts a probe.
func (m *member) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err == nil {
		m.good, m.bad = m.good+1, 0
	} else {
		m.good, m.bad = 0, m.bad+1
	}
}

// isUp and isAway report what the last probes say. Between the two nothing is known.
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

// meet finds out which server m is, and refuses two engines that are one. It reports whether
// there is nothing more to find out.
func (m *member) meet(ctx context.Context) bool {
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

// newUUID returns a UUID of version 8, by chance.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails, by its documentation
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
