package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// errMoved is why a lease is not renewed: it lasts until its deadline.
var errMoved = errors.New("the key has another member by a later membership, or the member has lost its record; the lease is not renewed and lasts until its deadline")

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	if err := b.group.Takes(a, b.terms.LongestTTL); err != nil {
		return nil, err
	}
	m := b.members[owner(b.names, a.Key)]
	e, err := m.current(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.refusal(e, a.Key); err != nil {
		return nil, err
	}
	granted, err := m.Backend.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &lease{Wrapped: engine.Wrapped{Lease: granted, TTL: a.TTL}, member: m, key: a.Key, epoch: e}, nil
}

// refusal returns why m does not grant key by the record e, or nil if it does.
func (m *member) refusal(e *epoch, key string) error {
	m.mu.Lock()
	s, waits, writeErr := e.state, e.learned.Add(m.backend.terms.Drain()).Left(), m.writeErr
	m.mu.Unlock()
	if err := m.backend.group.Refused(); err != nil {
		return err
	}
	switch unknown := m.backend.unknownMember(s); {
	case s.grants(m.name, key):
		return nil
	case s.Version > m.backend.options.Version && owner(s.Members, key) != m.name:
		return fmt.Errorf("by version %d of the membership the key is at %q; this process has version %d, which keeps it at %q: give it the later one",
			s.Version, owner(s.Members, key), m.backend.options.Version, m.name)
	case s.Version == m.backend.options.Version && unknown != "":
		return fmt.Errorf("%w: sharded: the key may be held at %q, a member before version %d; name it in Options.Leaving", driver.ErrInvalid, unknown, s.Version)
	}
	left := max(waits, 0) + m.backend.terms.Probe
	why := fmt.Sprintf("the member %q grants the key once no lease elsewhere, or by a record that was lost, can last: in %v at the earliest",
		m.name, left.Round(time.Millisecond))
	if other := m.backend.undrained(s); waits <= 0 && s.Version == m.backend.options.Version && other != "" {
		why += fmt.Sprintf(", and once the member %q has had version %d for long enough, and answers", other, s.Version)
	}
	if writeErr != nil {
		why += fmt.Sprintf("; %v", writeErr)
	}
	return engine.NotYet(left, why)
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	return b.members[owner(b.names, a.Key)].Backend.Undo(ctx, a)
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	return engine.Follow(ctx, b.group.Life, a, func() driver.Backend { return b.members[owner(b.names, a.Key)].Backend })
}

// lease implements [driver.Lease] by the lease of a member, which its record allows.
type lease struct {
	engine.Wrapped
	member *member
	key    string
	epoch  *epoch // by which it was granted
}

// lastLocked returns the last of the member's records that lets it grant the key, as all do from l's on.
func (l *lease) lastLocked() *epoch {
	e := l.epoch
	for e.next != nil && e.next.grants(l.member.name, l.key) {
		e = e.next
	}
	return e
}

// Deadline implements [driver.Lease]: the member's, but not after the wait of a change of the
// membership that was written just after the last look.
func (l *lease) Deadline() driver.Instant {
	l.member.mu.Lock()
	until := l.lastLocked().lastLook.Add(l.member.backend.terms.Bound())
	l.member.mu.Unlock()
	return engine.Earlier(l.Lease.Deadline(), until)
}

// moved reports whether the member does not have the key any more.
func (l *lease) moved() bool {
	l.member.mu.Lock()
	defer l.member.mu.Unlock()
	return l.lastLocked() != l.member.epoch
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	if l.moved() {
		return errMoved
	}
	return l.Lease.Renew(ctx, ttl)
}

// RenewAll implements [driver.BatchRenewer].
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return engine.RenewAt(ctx, leases, ttls, func(one driver.Lease) (driver.Backend, driver.Lease, error) {
		l := one.(*lease)
		if l.moved() {
			return nil, nil, errMoved
		}
		return l.member.Backend, l.Lease, nil
	})
}
