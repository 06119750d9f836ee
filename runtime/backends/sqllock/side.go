package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// side is a lease of one side of a read-write lock of strategy Advisory: a record, as with
// Table, and the session's lock, which those that read share. See DESIGN.md.
type side struct {
	driver.Lease // the record's
	key          string
	session      *session
	ended        atomic.Bool // a release has given the session's lock up
}

// takeSide takes the record of a lock that s holds.
func (b *Backend) takeSide(ctx context.Context, s *session, a *driver.Acquisition) (driver.Lease, error) {
	alone := *a
	alone.Queue = false // the server's queue is the only one
	l, err := b.kinds.Acquire(by(ctx, s, 0), &alone)
	a.MayHaveRun = alone.MayHaveRun
	if err != nil {
		return nil, err
	}
	return &side{Lease: l, key: a.Key, session: s}, nil
}

// Renew implements [driver.Lease].
func (l *side) Renew(ctx context.Context, ttl time.Duration) error {
	asking, cancel := context.WithTimeout(ctx, renewalLimit(ttl))
	defer cancel()
	err := l.session.holds(asking, l.key, l)
	if err == nil {
		err = l.Lease.Renew(ctx, ttl)
	}
	if errors.Is(err, driver.ErrLost) {
		l.session.discard() // nobody will release it
	}
	return err
}

// Downgrade implements [driver.Downgrader]: the record first, so that who then gets the
// session's lock finds that it may read.
func (l *side) Downgrade(ctx context.Context) error {
	s := l.session
	err := l.Lease.(driver.Downgrader).Downgrade(by(ctx, s, 0))
	if err == nil && !s.reads.Load() {
		err = s.backend.sessions.raw.(*advisory).downgrade(ctx, s, l.key)
	}
	if err != nil && s.gone() {
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	}
	return err
}

// Release implements [driver.Lease]: the record first, so that whoever is next in the
// server's queue finds it free.
func (l *side) Release(ctx context.Context, last uint64) error {
	s := l.session
	if gone, again := s.gone(), l.ended.Swap(true); gone {
		if err := l.Lease.Release(ctx, last); err != nil || again {
			return err
		}
		return driver.ErrLost // to whoever waited in the server's queue
	}
	err := l.Lease.Release(by(ctx, s, 0), last)
	lost := s.backend.sessions.raw.free(ctx, s, l.key)
	if lost == nil {
		s.giveBack()
		return err
	}
	s.discard() // which frees it as well
	switch {
	case err == nil && errors.Is(lost, driver.ErrLost):
		return lost
	case err != nil && !errors.Is(err, driver.ErrLost) && ctx.Err() == nil:
		return l.Lease.Release(ctx, last)
	}
	return err
}
