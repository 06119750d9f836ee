package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// sessionLease is a lease of strategy Advisory or RowLock: the lease of the table's row or of a
// record, and the lock of a session. See DESIGN.md.
type sessionLease struct {
	driver.Lease
	key       string
	session   *session
	releasing atomic.Bool // a release has begun, which frees the session's lock
}

// takeRow takes the row of a lock that s holds, or the record.
func (s *session) takeRow(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	b := s.backend
	from, take := connector(s), b.takeRow
	if b.strategy == RowLock { // the session is in a transaction
		from = b.rowConns
	}
	if a.Mode.Kind != 0 {
		take = b.kinds.Acquire
	}
	alone := *a
	// It waits for a row in the row's queue as well, among waiters of strategy Table. It does not wait
	// at a record, which would grant the lock without the session's.
	alone.Queue = a.Queue && a.Mode.Kind == 0
	row, err := take(via(ctx, from, 0), &alone)
	a.MayHaveRun = alone.MayHaveRun
	if err != nil {
		return nil, err
	}
	l := &sessionLease{Lease: row, key: a.Key, session: s}
	s.sessions.setOwner(s, a.ID, l)
	return l, nil
}

// Renew implements [driver.Lease].
func (l *sessionLease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.session.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// Downgrade implements [driver.Downgrader]. It changes the record first: a reader that then
// gets the raw lock finds that it may read.
func (l *sessionLease) Downgrade(ctx context.Context, last uint64) error {
	s := l.session
	err := l.Lease.(driver.Downgrader).Downgrade(via(ctx, s, 0), last)
	if err == nil && !s.shared.Load() {
		err = advisory{s.backend}.downgrade(ctx, s, l.key)
	}
	if err != nil && s.gone() {
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	}
	return err
}

// Release frees the row or the record, and then the session's lock, so that the next in
// the server's queue finds the row or record free.
func (l *sessionLease) Release(ctx context.Context, last uint64) error {
	s := l.session
	row, isRow := l.Lease.(*lease)
	if gone, again := s.gone(), l.releasing.Swap(true); gone {
		if err := l.Lease.Release(ctx, last); err != nil || again {
			return err
		}
		return driver.ErrLost // the next in the server's queue may have the session's lock
	}
	err := l.Lease.Release(via(ctx, s, 0), last)
	lost := s.free(ctx, l.key)
	switch {
	case errors.Is(err, driver.ErrLost), err == nil && lost == nil:
		return err
	case err == nil && errors.Is(lost, driver.ErrLost):
		return lost
	case err == nil && !isRow:
		return nil
	case err == nil: // it may have been rolled back with its transaction
		row.mayBeFreed.Store(true)
		err = lost
	}
	if ctx.Err() != nil {
		return err
	}
	return l.Lease.Release(ctx, last)
}
