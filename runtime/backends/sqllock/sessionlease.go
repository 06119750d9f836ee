package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// sessionLease is a lease of strategy Advisory or RowLock: that of the table's row, or of a
// record, and the lock of a session beside it. See DESIGN.md.
type sessionLease struct {
	driver.Lease
	key     string
	session *session
	ended   atomic.Bool // a release has given the session's lock up
	asked   atomic.Pointer[question]
}

// tables is what statements about rows and records go by: the session's own connection, unless
// that is in a transaction, or gone.
func (s *session) tables() connector {
	switch b := s.backend; {
	case b.strategy == RowLock:
		return b.rows
	case s.gone():
		return b.pool
	}
	return s
}

// takeLease takes the row of a lock that s has, or the record.
func (s *session) takeLease(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	b := s.backend
	l := &sessionLease{key: a.Key, session: s}
	var err error
	if a.Mode.Kind == 0 {
		l.Lease, err = b.takeRow(ctx, s.tables(), a)
	} else {
		alone := *a
		alone.Queue = false // the server's queue is the only one
		l.Lease, err = b.kinds.Acquire(by(ctx, s, 0), &alone)
		a.MayHaveRun = alone.MayHaveRun
	}
	if err != nil {
		return nil, err
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.state != ended {
		s.state, s.id, s.lease = holds, a.ID, l
		s.untilLocked(l.Deadline().Left())
	}
	return l, nil
}

// free gives the raw lock up, or else ends the session, which frees it as well.
func (s *session) free(ctx context.Context, key string) error {
	err := s.sessions.raw.free(ctx, s, key)
	if err == nil {
		s.giveBack()
	} else {
		s.discard()
	}
	return err
}

// Renew implements [driver.Lease].
func (l *sessionLease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.session.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// Downgrade implements [driver.Downgrader]: the record first, so that who then gets the
// session's lock finds that it may read.
func (l *sessionLease) Downgrade(ctx context.Context) error {
	s := l.session
	err := l.Lease.(driver.Downgrader).Downgrade(by(ctx, s, 0))
	if err == nil && !s.reads.Load() {
		err = s.sessions.raw.(*advisory).downgrade(ctx, s, l.key)
	}
	if err != nil && s.gone() {
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	}
	return err
}

// Release frees the row or the record, and then the session's lock: whoever is next in
// the server's queue finds the other free.
func (l *sessionLease) Release(ctx context.Context, last uint64) error {
	s := l.session
	gone, again := s.gone(), l.ended.Swap(true)
	err := l.Lease.Release(by(ctx, s.tables(), 0), last)
	if !gone {
		gone = errors.Is(s.free(ctx, l.key), driver.ErrLost)
		if err != nil && !errors.Is(err, driver.ErrLost) && ctx.Err() == nil { // its connection had ended
			err = l.Lease.Release(by(ctx, s.tables(), 0), last)
		}
	}
	if err == nil && gone && !again {
		return driver.ErrLost // to whoever waited in the server's queue
	}
	return err
}

// renewAll is RenewAll of leases whose sessions are asked first whether they still hold
// their locks.
func (ss *sessions) renewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	ss.probe(ctx, leases, ttls, errs)
	var rest []int
	var inner []driver.Lease
	var lengths []time.Duration
	for i, l := range leases {
		if errs[i] == nil {
			rest, inner, lengths = append(rest, i), append(inner, l.(*sessionLease).Lease), append(lengths, ttls[i])
		}
	}
	if len(rest) > 0 {
		for n, err := range ss.backend.renewAll(ctx, inner, lengths) {
			errs[rest[n]] = err
		}
	}
	for i, l := range leases {
		if errors.Is(errs[i], driver.ErrLost) {
			l.(*sessionLease).lose()
		}
	}
	return errs
}

const (
	// probesAtOnce is how many connections are asked at once. Each costs several
	// goroutines meanwhile, of ours, of database/sql and of the driver.
	probesAtOnce = 8
	// probeRoom is how long one that does not answer counts among them.
	probeRoom = 20 * time.Millisecond
)

// probe asks the sessions of leases whether they still hold their locks, and notes in
// errs what they say. One that does not answer keeps the others waiting for a
// third of the shortest lease at most, whatever its own is.
func (ss *sessions) probe(ctx context.Context, leases []driver.Lease, ttls []time.Duration, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, renewalLimit(slices.Min(ttls)))
	defer cancel()
	var asking sync.WaitGroup
	room := make(chan struct{}, probesAtOnce)
	for i, one := range leases {
		room <- struct{}{}
		asking.Go(func() {
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer time.AfterFunc(probeRoom, leave).Stop()
			errs[i] = one.(*sessionLease).holds(ctx)
		})
	}
	asking.Wait()
}

// question is whether a session holds its lock, that is on its way.
type question struct {
	done chan struct{}
	err  error // once done
}

// holds asks the server whether the session still holds the lock. The question outlives
// ctx, because to take it back would close the connection; all who ask meanwhile
// wait for it.
func (l *sessionLease) holds(ctx context.Context) error {
	q := &question{done: make(chan struct{})}
	if !l.asked.CompareAndSwap(nil, q) {
		if q = l.asked.Load(); q == nil {
			return l.holds(ctx) // it was answered just now
		}
	} else if !l.session.backend.life.Go(func(life context.Context) {
		q.err = l.ask(life)
		l.asked.Store(nil)
		close(q.done)
	}) {
		return errClosed
	}
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return fmt.Errorf("the lock's connection does not answer: %w", ctx.Err())
	}
}

// lose ends the session of a lease that is lost, which nobody will release; unless it is just
// being released.
func (l *sessionLease) lose() {
	if !l.ended.Load() {
		l.session.discard()
	}
}

// ask returns driver.ErrLost if the session does not hold the lock any more.
func (l *sessionLease) ask(ctx context.Context) error {
	s, b := l.session, l.session.backend
	probe := b.sessions.raw.probe(l.key)
	probe.limit = max(l.Deadline().Left(), time.Millisecond)
	r, err := b.attempt(ctx, s, probe)
	switch {
	case errors.Is(err, errNotSent), errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	case err != nil && b.endedBy(err):
		l.lose()
		return fmt.Errorf("%w: its session does not hold it any more: %w", driver.ErrLost, err)
	case err != nil:
		return err
	case len(r.rows) != 1 || r.rows[0][0] != 1 || r.rows[0][1] != s.number:
		b.sessions.checked.Store(false) // a pooler may have shown
		l.lose()
		return fmt.Errorf("%w: session %d does not hold it, as %v", driver.ErrLost, s.number, r.rows)
	}
	return nil
}

// endedBy reports whether err, which a probe was answered with, says that the raw
// lock is gone: another has it, or the transaction that held it has ended.
// PostgreSQL ends one at any error, MySQL at a deadlock; and MariaDB says of a row
// that is locked what it says after a wait.
func (b *Backend) endedBy(err error) bool {
	k := b.dialect.judge(err)
	return k == taken || b.strategy == RowLock && (b.dialect == Postgres || k == passing)
}
