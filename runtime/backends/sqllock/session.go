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
)

const (
	// sessionTries is how many connections an acquire tries, if they turn out dead.
	sessionTries = 4
	// waitingMost is how many sessions of a Backend wait in the server's queues at once.
	// Who finds no room tries now and then.
	waitingMost = 16
	// askWithin is how long a session waits, or keeps what it was granted, since it was asked
	// for, or granted. Its process asks once a second, and when it is told.
	askWithin = 2500 * time.Millisecond
)

// sessionState is what the session of a lock is for; DESIGN.md has the whole.
type sessionState int

const (
	asks    sessionState = iota // an acquire uses it, and it has the lock or does not wait for it
	waits                       // in the server's queue, until askWithin is over
	granted                     // by the server, for the next attempt to collect, until askWithin is over
	holds                       // the lock of an acquisition, until its lease is over
	ended                       // its connection is closed, or will be
)

// session is the dedicated connection of one lock of strategy Advisory or RowLock:
// never of two, because a session may take a lock that it has once more.
type session struct {
	*dedicated
	sessions *sessions
	number   int64       // the server's, once known
	reads    atomic.Bool // it shares its lock with others: see rawLock

	// The mutex of sessions guards the rest.
	state   sessionState
	id      string             // of the acquisition that holds the lock by it, or asked last
	address string             // of who waits
	cancel  context.CancelFunc // of the wait
	lease   driver.Lease
	timer   *time.Timer
}

// sessions are those of a Backend's locks.
type sessions struct {
	backend *Backend
	raw     rawLock

	mu  sync.Mutex // guards all, and the states of its sessions
	all map[*session]struct{}

	checking chan struct{} // a semaphore of one check
	checked  atomic.Bool   // that sessions are the server's own
}

func newSessions(b *Backend) *sessions {
	ss := &sessions{backend: b, checking: make(chan struct{}, 1), all: map[*session]struct{}{}}
	if b.strategy == Advisory {
		ss.raw = newAdvisory(b)
	} else {
		ss.raw = newRowLock(b)
	}
	return ss
}

// open returns a session that takes a connection out of the pool with its first
// statement.
func (ss *sessions) open() *session {
	s := &session{sessions: ss}
	s.dedicated = ss.backend.newDedicated(false, func() { // the connection is gone
		ss.mu.Lock()
		defer ss.mu.Unlock()
		s.state = ended
		if delete(ss.all, s); s.timer != nil {
			s.timer.Stop()
		}
	})
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all[s] = struct{}{}
	return s
}

// close discards all connections that are left.
func (ss *sessions) close() {
	ss.mu.Lock()
	left := slices.Collect(maps.Keys(ss.all))
	ss.mu.Unlock()
	for _, s := range left {
		s.discard()
	}
}

// findLocked returns a session of which is says so, or nil.
func (ss *sessions) findLocked(is func(*session) bool) *session {
	for s := range ss.all {
		if is(s) {
			return s
		}
	}
	return nil
}

// placedLocked returns the session that waits for who asks for a, or was granted what it
// waited for; or nil.
func (ss *sessions) placedLocked(a *driver.Acquisition) *session {
	return ss.findLocked(func(s *session) bool {
		return (s.state == waits || s.state == granted) && s.address == placeOf(a)
	})
}

// placeOf names the place in the server's queue that a asks for: by its ID, unless all of its
// process that wait for the key have one.
func placeOf(a *driver.Acquisition) string {
	if a.Mode.Kind != 0 {
		return a.ID
	}
	return address(a.Key, a.ID)
}

// untilLocked has the session end after d, unless it is asked for, or its lease renewed.
func (s *session) untilLocked(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.over)
	} else {
		s.timer.Reset(d)
	}
}

// over ends a session whose time is over: whoever lost a lease does not release it.
func (s *session) over() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.state == holds {
		if left := s.lease.Deadline().Left(); left > 0 {
			s.timer.Reset(left)
			return
		}
	}
	s.endLocked()
}

// endLocked ends the session: one that waits at the server as well, which may not notice that
// the client has gone.
func (s *session) endLocked() {
	b, waited, number := s.backend, s.state == waits, s.number
	if s.state == ended || s.state == asks {
		return
	}
	s.state = ended
	b.life.Go(func(ctx context.Context) {
		if !waited {
			s.discard()
			return
		}
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, _ = b.attempt(ctx, b.renewals, b.dialect.kill(number)) // else the grant ends it
	})
	if waited {
		s.cancel()
	}
}

// acquire takes the raw lock, and then the row: who waits does so for the raw lock,
// in one queue with foreign clients.
func (ss *sessions) acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if !ss.checked.Load() {
		if err := ss.backend.Ping(ctx); err != nil {
			return nil, err
		}
	}
	ss.mu.Lock()
	s := ss.findLocked(func(s *session) bool { return s.state == holds && s.id == a.ID })
	ss.mu.Unlock()
	if s != nil { // once more
		return s.takeLease(ctx, a)
	}
	for try := 1; ; try++ {
		l, dead, err := ss.attempt(ctx, a)
		var held *driver.HeldError
		switch {
		case err == nil:
			return l, nil
		case errors.As(err, &held):
			return nil, err
		case dead && ctx.Err() == nil && try < sessionTries:
		case a.MayHaveRun && !errors.Is(err, driver.ErrIndeterminate):
			return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		default:
			return nil, err
		}
	}
}

// attempt is one try of acquire, on one session. dead says that its connection was
// at fault.
func (ss *sessions) attempt(ctx context.Context, a *driver.Acquisition) (l driver.Lease, dead bool, err error) {
	s, stands := ss.collect(a)
	if stands {
		return nil, false, &driver.HeldError{}
	}
	if s == nil {
		s = ss.open()
		s.reads.Store(a.Mode.Kind == driver.Read)
		got, err := ss.raw.take(ctx, s, a.Key, false)
		switch {
		case err != nil:
			dead = s.gone()
			s.discard()
			return nil, dead, err
		case !got:
			if !a.Queue || !ss.stand(ctx, s, a) {
				s.giveBack()
			}
			return nil, false, &driver.HeldError{} // nobody knows for how long
		}
	}
	l, err = s.takeLease(ctx, a)
	if err == nil {
		return l, false, nil
	}
	dead = s.gone()
	s.free(ctx, a.Key)
	return nil, dead, err
}

// stand has s wait in the server's queue for a, beside, and reports whether it does.
func (ss *sessions) stand(ctx context.Context, s *session, a *driver.Acquisition) bool {
	if s.number == 0 {
		number, err := ss.backend.sessionOf(ctx, s)
		if err != nil {
			return false
		}
		s.number = number
	}
	wait, cancel := context.WithCancel(ss.backend.life.Context())
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.placedLocked(a) != nil || !ss.roomLocked() || !ss.backend.life.Go(func(context.Context) {
		defer cancel()
		got, err := ss.raw.take(wait, s, a.Key, true)
		ss.waited(s, got && err == nil)
	}) {
		cancel()
		return false
	}
	s.state, s.address, s.id, s.cancel = waits, placeOf(a), a.ID, cancel
	s.untilLocked(askWithin)
	a.MayBeGranted = true
	return true
}

// roomLocked reports whether one more session may wait: others need connections too.
func (ss *sessions) roomLocked() bool {
	n, most := 0, ss.backend.db.Stats().MaxOpenConnections
	for s := range ss.all {
		if s.state == waits || s.state == granted {
			n++
		}
	}
	return n < waitingMost && (most == 0 || n < (most-besides[RowLock])/2)
}

// waited is called when the wait of s is over: got says that it was granted.
func (ss *sessions) waited(s *session, got bool) {
	ss.mu.Lock()
	got = got && s.state == waits
	if got {
		s.state = granted
		s.untilLocked(askWithin)
	}
	address := s.address
	ss.mu.Unlock()
	if !got {
		s.discard()
	}
	ss.backend.hub.Notify(address) // if it was not granted it stands anew
}

// collect returns the session that was granted what a asks for, or reports that it
// still waits.
func (ss *sessions) collect(a *driver.Acquisition) (got *session, stands bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.placedLocked(a)
	switch {
	case s == nil:
		return nil, false
	case s.state == granted:
		s.state = asks
		return s, false
	}
	if a.Queue {
		a.MayBeGranted = true
		s.untilLocked(askWithin)
		if !a.BegunBefore(s.id) {
			s.id = a.ID
		}
	}
	return nil, true
}

// undo frees the raw lock that an acquisition holds, and the place in the server's queue
// if a gives it up and no later acquisition of its process has taken it over.
func (ss *sessions) undo(a *driver.Acquisition) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.findLocked(func(s *session) bool { return s.state == holds && s.id == a.ID }); s != nil {
		s.endLocked()
	}
	if s := ss.placedLocked(a); s != nil && (s.address == a.ID || a.Queue && !a.BegunBefore(s.id)) {
		s.endLocked()
	}
}
