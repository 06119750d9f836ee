package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// session is the dedicated connection of one lock of strategy Advisory or RowLock. It
// never serves two, because the server lets a session take a lock again that it has.
type session struct {
	*dedicated
	sessions *sessions
	number   int64       // the server's, once known
	shared   atomic.Bool // its lock is the shared one, of readers: see rawLock

	// The mutex of sessions guards the rest.
	owner  string       // the acquisition that holds a lock by it
	lease  driver.Lease // the last that was granted on it
	expiry *time.Timer
}

// sessions are the sessions of a Backend's locks.
type sessions struct {
	backend *Backend
	raw     rawLock

	mu     sync.Mutex // guards the maps, and what is in them
	all    map[*session]bool
	places map[string]*place // by placeOf

	checkTurns    engine.KeyedMutex[struct{}] // one check at a time
	poolerChecked atomic.Bool                 // no pooler was found
}

func newSessions(b *Backend) *sessions {
	ss := &sessions{backend: b, raw: rowLock{b}, all: map[*session]bool{}, places: map[string]*place{}}
	if b.strategy == Advisory {
		ss.raw = advisory{b}
	}
	return ss
}

// newSession returns a session, which takes a connection out of the pool with its
// first statement.
func (ss *sessions) newSession() *session {
	s := &session{sessions: ss}
	s.dedicated = ss.backend.newDedicated(false, s.forget)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all[s] = true
	return s
}

// run is [Backend.run] on the connection of s.
func (s *session) run(ctx context.Context, one *statement) (answer, bool, error) {
	return s.backend.run(via(ctx, s, 0), one)
}

// exec runs a statement that begins or ends a transaction.
func (s *session) exec(ctx context.Context, how string) error {
	_, _, err := s.run(ctx, &statement{text: how})
	return err
}

// forget is called when the connection of s is gone.
func (s *session) forget() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	delete(s.sessions.all, s)
}

// byOwner returns the session by which acquisition id holds its lock, or nil.
func (ss *sessions) byOwner(id string) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.all {
		if s.owner == id {
			return s
		}
	}
	return nil
}

// close discards all connections that are left.
func (ss *sessions) close() {
	ss.mu.Lock()
	left := slices.Collect(maps.Keys(ss.all))
	ss.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range left {
		all.Go(s.discard)
	}
	all.Wait()
}

// sessionTries is how many connections an acquire tries, if they turn out dead.
const sessionTries = 4

// acquire takes the raw lock, and then the row: an acquisition waits for the raw lock, in
// one queue with foreign clients.
func (ss *sessions) acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if !ss.poolerChecked.Load() {
		if err := ss.backend.Ping(ctx); err != nil {
			return nil, err
		}
	}
	if s := ss.byOwner(a.ID); s != nil { // a repeated attempt
		return s.takeRow(ctx, a)
	}
	l, connLost, err := ss.attempt(ctx, a)
	for try := 1; connLost && ctx.Err() == nil && try < sessionTries; try++ {
		l, connLost, err = ss.attempt(ctx, a)
	}
	return l, err
}

// attempt is one try of acquire, on one session. connLost says that its connection was
// lost.
func (ss *sessions) attempt(ctx context.Context, a *driver.Acquisition) (l driver.Lease, connLost bool, err error) {
	s, waits := ss.collectGrant(a)
	if waits {
		return nil, false, &driver.HeldError{}
	}
	if s == nil {
		s = ss.newSession()
		s.shared.Store(a.Mode.Kind == driver.Read)
		got, err := ss.raw.try(ctx, s, a.Key)
		switch {
		case err != nil:
			connLost = s.gone()
			s.discard()
			return nil, connLost, err
		case !got:
			if !a.Queue || !ss.enqueue(ctx, s, a) {
				s.giveBack()
			}
			return nil, false, &driver.HeldError{} // the database does not tell for how long
		}
	}
	l, err = s.takeRow(ctx, a)
	if err != nil {
		connLost = s.gone()
		_ = s.free(ctx, a.Key)
		a.MayBeGranted = false // it is not in the server's queue: its poller looks at the row
	}
	return l, connLost, err
}

// free frees the raw lock of key, and gives the connection back. If that fails it ends the session,
// which frees the lock as well, and returns an error: the session may have lost the lock before.
func (s *session) free(ctx context.Context, key string) error {
	err := s.sessions.raw.free(ctx, s, key)
	if err == nil {
		s.giveBack()
	} else {
		s.discard()
	}
	return err
}

// setOwner notes that acquisition id holds its lock by s, for as long as l lasts.
func (ss *sessions) setOwner(s *session, id string, l *sessionLease) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.owner, s.lease = id, l
	if s.expiry == nil && !s.gone() {
		s.expiry = time.AfterFunc(l.Deadline().Left(), s.expire)
	}
}

// expire ends the raw lock with the lease: nobody releases a lease that is lost.
func (s *session) expire() {
	s.sessions.mu.Lock()
	left := s.lease.Deadline().Left()
	if left > 0 && !s.gone() {
		s.expiry.Reset(left)
	}
	s.sessions.mu.Unlock()
	if left <= 0 {
		s.discard()
	}
}

// undo frees the raw lock that an acquisition holds, and the place in the server's queue
// if a gives it up and no later acquisition of its process has taken it over.
func (ss *sessions) undo(a *driver.Acquisition) {
	if s := ss.byOwner(a.ID); s != nil {
		s.discard()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	p := ss.places[placeOf(a)]
	if p != nil && (p.waiter == a.ID || a.Queue && !a.BegunBefore(p.id)) {
		ss.giveUpLocked(p)
	}
}

const (
	// maxProbes is how many connections are asked at once. Each costs several
	// goroutines meanwhile, of ours, of database/sql and of the driver.
	maxProbes = 8
	// slowProbe is after how long a connection without an answer does not count in maxProbes.
	slowProbe = 20 * time.Millisecond
)

// probeAll asks the sessions of leases whether they still hold their locks, and sets
// errs. A session that does not answer delays the result by a third of the shortest
// lease at most.
func (ss *sessions) probeAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout(slices.Min(ttls)))
	defer cancel()
	var asking sync.WaitGroup
	room := make(chan struct{}, maxProbes)
	for i, one := range leases {
		room <- struct{}{}
		asking.Go(func() {
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer time.AfterFunc(slowProbe, leave).Stop()
			errs[i] = one.(*sessionLease).probe(ctx)
		})
	}
	asking.Wait()
}

// probe asks the server whether the session still holds the lock. The question outlives
// ctx: to cancel it would close the connection.
func (l *sessionLease) probe(ctx context.Context) error {
	answered := make(chan error, 1)
	if !l.session.backend.life.Go(func(life context.Context) { answered <- l.ask(life) }) {
		return driver.ErrClosed
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		err := fmt.Errorf("the lock's connection does not answer: %w", ctx.Err())
		if l.Deadline().Left() <= 0 { // expire can't end the session before the answer either
			err = fmt.Errorf("%w: %w", driver.ErrLost, err)
		}
		return err
	}
}

// ask returns driver.ErrLost if the session does not hold the lock any more.
func (l *sessionLease) ask(ctx context.Context) error {
	s, b := l.session, l.session.backend
	ctx = via(ctx, s, max(l.Deadline().Left(), time.Millisecond))
	r, err := b.attempt(ctx, b.sessions.raw.probeStatement(s, l.key))
	switch {
	case errors.Is(err, errNotSent), errors.Is(err, errNoAnswer):
		return fmt.Errorf("%w: its connection has ended: %w", driver.ErrLost, err)
	case err != nil && b.saysLockGone(err):
		s.discard()
		return fmt.Errorf("%w: its session does not hold it any more: %w", driver.ErrLost, err)
	case err != nil:
		return err
	case len(r.rows) != 1 || r.number(0, 0) != 1 || r.number(0, 1) != s.number:
		if len(r.rows) == 1 && r.number(0, 1) != s.number {
			b.sessions.poolerChecked.Store(false)
		}
		s.discard()
		return fmt.Errorf("%w: session %d does not hold it, as %v", driver.ErrLost, s.number, r.rows)
	}
	return nil
}

// saysLockGone reports whether err, the answer to a probe, says that the raw lock is
// gone: another has it, or the transaction that held it has ended. PostgreSQL ends a
// transaction at any error, MySQL at a deadlock. MariaDB answers for a locked row with
// the error of a wait that took too long.
func (b *Backend) saysLockGone(err error) bool {
	class := b.dialect.classify(err)
	return class == rowLocked || b.strategy == RowLock && (b.dialect == Postgres || class == transient)
}

// rawLock is a lock of the database's own, which a session holds and foreign clients
// know. A session that is shared takes it shared.
type rawLock interface {
	// try takes key for s if it is free, and does not wait.
	try(ctx context.Context, s *session, key string) (bool, error)
	// wait takes key for s, in the server's queue. It returns an error after serverWaitLimit.
	wait(ctx context.Context, s *session, key string) error
	// free frees key. It returns driver.ErrLost if the session did not hold it.
	free(ctx context.Context, s *session, key string) error
	// probeStatement returns the statement that answers with 1, and the number of the
	// session, if s still holds key.
	probeStatement(s *session, key string) *statement
}

// serverWaitLimit is how long the server keeps a session in its queue. InnoDB uses
// innodb_lock_wait_timeout instead, which is 50 s unless it was set.
const serverWaitLimit = 50 * time.Second

// viaWaiting is via for a statement that waits in the server's queue.
func viaWaiting(ctx context.Context, s *session) context.Context {
	return via(ctx, s, serverWaitLimit+attemptLimit)
}
