package engine

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
	idleLengths   = 3                      // a session that nobody has used for this many of its lengths is ended
	retryKeep     = 250 * time.Millisecond // the longest pause after a keep-alive that failed
	retryUndo     = time.Second            // the pause between two tries; the Locker's own come more often
	undoWithin    = time.Second            // the timeout of one attempt
	destroyWithin = 500 * time.Millisecond // the timeout of one attempt
	longestRetry  = 2 * time.Second        // the longest pause between two tries to end a session at the server
)

var (
	errIdle = errors.New("the session was idle")
	errSlow = errors.New("no answer to a keep-alive yet")
)

// Session is a session of a Backend at its server. It lasts until End, until its deadline has
// passed, or until nobody has used it for three of its lengths. It does not come back: Sessions
// opens another.
type Session struct {
	life   *Life
	server SessionServer
	undo   func(context.Context, *driver.Acquisition) error
	retire func() // allows another session of the class to be opened
	forget func() // called when the session has ended at the server

	ctx      context.Context // ends with the session
	cancel   context.CancelCauseFunc
	opened   chan struct{} // closed once the session is open, or can't be opened
	failed   error         // why it can't be opened; set before opened is closed
	deadline Deadline
	length   atomic.Int64  // ns
	period   atomic.Int64  // ns
	ask      chan struct{} // has a value when a keep-alive is requested now

	mu       sync.Mutex // guards the rest
	users    int
	unused   time.Time     // since when there are no users
	tried    chan struct{} // closed and replaced when a keep-alive was tried
	keepErr  error         // the error of the last keep-alive, if it failed
	leases   map[*Lease]struct{}
	pending  map[string]*driver.Acquisition // undos, by ID
	retrying bool                           // a goroutine runs the undos
}

func newSession(life *Life) *Session {
	s := &Session{
		life:    life,
		opened:  make(chan struct{}),
		ask:     make(chan struct{}, 1),
		tried:   make(chan struct{}),
		leases:  map[*Lease]struct{}{},
		pending: map[string]*driver.Acquisition{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Base implements [SessionServer], for the type that embeds s.
func (s *Session) Base() *Session { return s }

// Context ends with the session; its cause is that of End.
func (s *Session) Context() context.Context { return s.ctx }

// Deadline returns the instant before which the server does not end the session: the zero Instant
// once it has ended.
func (s *Session) Deadline() driver.Instant {
	if s.ctx.Err() != nil {
		return driver.Instant{}
	}
	return s.deadline.Get()
}

// Left returns how long the session lasts without another keep-alive.
func (s *Session) Left() time.Duration { return s.Deadline().Left() }

// Extend records that the server keeps the session for length, counted from sent. sent is before
// the request that proved it. The deadline only moves forward. A keep-alive follows after each
// period.
func (s *Session) Extend(sent driver.Instant, length, period time.Duration) {
	s.length.Store(int64(length))
	s.period.Store(int64(period))
	s.deadline.Extend(sent.Add(length))
	s.keepAliveTried(nil)
}

// Shorten moves the deadline to until, if that is earlier, because the server grants less than
// before. The Locker then looks at the leases.
func (s *Session) Shorten(until driver.Instant) {
	s.deadline.Shorten(until)
	s.life.Go(func(context.Context) { s.notifyLoss() })
}

// Alive reports whether the session can be relied on. Once its deadline has passed the session is
// over, whatever the server says later, because its holders have given up.
func (s *Session) Alive() bool {
	if s.ctx.Err() == nil && s.Left() <= 0 {
		s.End(fmt.Errorf("%w: no keep-alive was answered in time", driver.ErrLost))
	}
	return s.ctx.Err() == nil
}

// End ends the session, here at once and at the server soon. Its leases are lost, and their holders
// are told. The first cause counts.
func (s *Session) End(cause error) {
	s.retire()
	s.cancel(cause)
}

// Use adds a user: a call, a hold, or a place in a queue. A session without users is idle.
func (s *Session) Use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// Drop removes a user.
func (s *Session) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.unused = time.Now()
}

// Await waits until the session will last for at least d more, and requests keep-alives meanwhile.
// d must be less than the session's length by more than the time of an answer. The error wraps
// driver.ErrLost if the session has ended, or that of ctx.
func (s *Session) Await(ctx context.Context, d time.Duration) error {
	for s.Left() < d {
		select {
		case <-s.Ask():
		case <-s.ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrLost, context.Cause(s.ctx))
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return errors.Join(fmt.Errorf("the session lasts for another %v: %w", s.Left(), ctx.Err()), s.keepErr)
		}
	}
	return nil
}

// Ask requests a keep-alive now, or soon if the last one failed. It returns a channel that is
// closed when one was tried.
func (s *Session) Ask() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.ask <- struct{}{}:
	default:
	}
	return s.tried
}

// keepAliveTried wakes the callers that wait for a keep-alive.
func (s *Session) keepAliveTried(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepErr = err
	close(s.tried)
	s.tried = make(chan struct{})
}

// keep sends keep-alives until the session ends: one period after the last one, or when Ask
// requests it. After a failure it pauses briefly, even if a keep-alive is requested.
func (s *Session) keep() {
	timer := time.NewTimer(time.Duration(s.period.Load()))
	defer timer.Stop()
	ask := s.ask
	for {
		select {
		case <-timer.C:
		case <-ask:
		case <-s.ctx.Done():
		}
		if s.idle() {
			s.retire()
			if s.idle() { // check again, now that no caller can find it
				s.cancel(errIdle)
			}
		}
		if !s.Alive() {
			return
		}
		select {
		case <-s.ask: // the keep-alive below answers it
		default:
		}
		wait := time.Duration(s.period.Load())
		ask = s.ask
		if !s.keepOnce() {
			wait = min(time.Duration(s.length.Load()/20), retryKeep)
			ask = nil
		}
		timer.Reset(max(min(wait, s.Left()), 0))
	}
}

// keepOnce tries one keep-alive, and waits half a period for its answer. Then the caller tries
// another. A later answer still counts.
func (s *Session) keepOnce() bool {
	answered := make(chan error, 1)
	s.life.Go(func(context.Context) {
		ctx, cancel := context.WithTimeout(s.ctx, s.Left())
		defer cancel()
		err := s.server.KeepAlive(ctx)
		if errors.Is(err, driver.ErrLost) {
			s.End(err)
		}
		answered <- err
	})
	limit := time.NewTimer(max(time.Duration(s.period.Load())/2, 100*time.Millisecond))
	defer limit.Stop()
	err := errSlow
	select {
	case err = <-answered:
	case <-limit.C:
	case <-s.ctx.Done():
	}
	if err != nil {
		s.keepAliveTried(err)
	}
	return err == nil
}

func (s *Session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0 && time.Since(s.unused) >= idleLengths*time.Duration(s.length.Load())
}

// notifyLoss makes the Locker look at all leases.
func (s *Session) notifyLoss() {
	for _, l := range s.all() {
		l.notifyLoss()
	}
}

func (s *Session) all() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.leases))
}
