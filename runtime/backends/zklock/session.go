package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// session is one session of ZooKeeper, which all leases of one length share,
// and the Conn that keeps it. It is over when the server has expired it or it
// was retired: what comes after is another session with another Conn, and no
// lease of this one comes back.
type session struct {
	backend *Backend
	span    span
	wire    *wire
	conn    *zk.Conn

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	opened chan struct{} // closed when the session stands, or can't be had
	failed error         // why it can't be had; read it once opened is closed
	slots  chan struct{} // bounds the calls under way, and so their goroutines
	gate   chan struct{} // bounds the acquires under way
	work   sync.WaitGroup

	watches watches

	mu      sync.Mutex
	stands  bool          // the Conn has authenticated for the first time
	up      chan struct{} // closed while there is a connection
	id      int64
	timeout time.Duration // the shortest that a server granted
	proof   proof
	news    chan struct{} // closed, and another made, when more is proved
	leases  map[*lease]bool
	users   int       // places and leases
	used    time.Time // when the last of them left
}

// kind is what a request proves. See proof.
type kind bool

const (
	read  kind = false
	write kind = true
)

const (
	// callsAtOnce bounds the calls of one session that are under way.
	callsAtOnce = 512
	// acquiresAtOnce bounds its acquires under way. In a flood of them each
	// lease counts from when its own was sent, so the rest had better wait.
	acquiresAtOnce = 64
	// patience is how long a call waits for a connection that was lost: an
	// ensemble elects a leader within a second or two.
	patience = 3 * time.Second
	// idleAfter is how long a session outlives its last lease.
	idleAfter = time.Minute
)

// Errors of calls that did not end as they should.
var (
	// errNotSent says that the request never left.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that it may have run, or may yet run.
	errNoAnswer = errors.New("no answer")
	errExpired  = errors.New("the ZooKeeper session has expired, and with it every lock that it held")
	errRetired  = errors.New("the ZooKeeper session was closed")
)

func newSession(b *Backend, sp span) *session {
	s := &session{
		backend: b,
		span:    sp,
		opened:  make(chan struct{}),
		slots:   make(chan struct{}, callsAtOnce),
		gate:    make(chan struct{}, acquiresAtOnce),
		up:      make(chan struct{}),
		news:    make(chan struct{}),
		leases:  map[*lease]bool{},
		timeout: sp.timeout,
		used:    time.Now(),
	}
	s.watches.path, s.watches.asked = map[string]*watched{}, map[string]bool{}
	s.proof.tick = sp.tick
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.wire = b.newWire(s.ctx, max(sp.timeout/3, 250*time.Millisecond), &s.watches, s.granted, s.giveUp)
	return s
}

// open makes the session, and keeps it. It returns when the session is over.
func (s *session) open() {
	b := s.backend
	conn, events, err := b.connect(s.wire, s.span.timeout, s.event)
	if err != nil {
		s.giveUp(fmt.Errorf("zookeeper: %w", err))
		return
	}
	s.conn = conn
	go func() {
		defer b.work.Done()
		for range events { // it ends with the Conn's last goroutine
		}
	}()
	if s.authenticate() {
		s.keep()
	}
	s.leave()
}

// leave ends the Conn, and the session at the server if that may still have it
// and answers soon: one that does not ends it after the session's timeout.
func (s *session) leave() {
	if errors.Is(s.over(), errRetired) && closed(s.isUp()) {
		defer time.AfterFunc(farewell, s.wire.cut).Stop()
	} else {
		s.wire.hangUp()
	}
	s.conn.Close()
	s.settle()
	s.work.Wait()
}

// settle returns once begin lets nobody in any more: the session was over before.
func (s *session) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// farewell is how long a server may take over that.
const farewell = 100 * time.Millisecond

// begin lets a goroutine in that the end of the session waits for.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Add(1)
	return true
}

// authenticate waits until the session stands, in the caller's name.
func (s *session) authenticate() bool {
	select {
	case <-s.isUp():
	case <-s.ctx.Done():
		return false
	}
	defer context.AfterFunc(s.ctx, s.wire.cut)() // a server that does not answer would keep us
	for _, auth := range s.backend.auth {
		// The library repeats it by itself after every reconnection.
		if err := s.conn.AddAuth(auth.Scheme, auth.Auth); err != nil {
			what := "refuses"
			if !answered(err) {
				what = "ended the connection without an answer to"
			}
			s.giveUp(fmt.Errorf("zookeeper %s the credentials of scheme %q; see Options.Auth: %w", what, auth.Scheme, err))
			return false
		}
	}
	s.mu.Lock()
	s.stands = s.failed == nil
	stands := s.stands
	s.mu.Unlock()
	if stands { // else giveUp has said so
		close(s.opened)
	}
	return stands
}

// giveUp ends a session that never stood, for those who wait for it. For one
// that did it does nothing: it goes on trying until it expires.
func (s *session) giveUp(err error) {
	s.mu.Lock()
	if s.stands || s.failed != nil {
		s.mu.Unlock()
		return
	}
	s.failed = err
	s.mu.Unlock()
	s.cancel(err)
	s.backend.forget(s)
	close(s.opened)
}

// granted is called when a server has answered the handshake.
func (s *session) granted(g grant) {
	s.mu.Lock()
	if g.session == 0 || s.id != 0 && g.session != s.id {
		s.mu.Unlock()
		return // the library tells of it
	}
	if s.id == 0 {
		s.id, s.proof.since, s.proof.sinceAt = g.session, g.sent, g.at
	}
	var cut []*lease
	if g.timeout < s.timeout {
		s.timeout = g.timeout
		cut = slices.Collect(maps.Keys(s.leases))
	}
	s.proof.opened(g.sent, g.at)
	s.mu.Unlock()
	if g.timeout < s.span.timeout {
		s.giveUp(s.backend.outside(g.timeout))
	}
	if len(cut) > 0 { // the servers' longest timeout was lowered under us
		s.shorten(cut, g.sent.Add(g.timeout))
	}
}

// shorten has leases end by until.
func (s *session) shorten(leases []*lease, until driver.Instant) {
	for _, l := range leases {
		l.shorten(until)
	}
	if !s.begin() {
		return
	}
	go func() {
		defer s.work.Done()
		for _, l := range leases {
			l.tell()
		}
	}()
}

// event is the library's callback. It runs on the library's own goroutines and
// must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventNotWatching: // the session's end tells all of them
	case e.Type != zk.EventSession:
		s.watches.tell(e.Path, e.Type == zk.EventNodeDeleted)
	case e.State == zk.StateExpired:
		s.end(errExpired)
	case e.State == zk.StateHasSession:
		s.mu.Lock()
		if !closed(s.up) {
			close(s.up)
		}
		s.mu.Unlock()
	case e.State == zk.StateDisconnected:
		s.mu.Lock()
		if closed(s.up) {
			s.up = make(chan struct{})
		}
		s.mu.Unlock()
	}
}

// end is the end of the session, for everything that it held.
func (s *session) end(why error) {
	s.cancel(why)
	s.backend.forget(s)
	s.mu.Lock()
	lost := s.leases
	s.leases = map[*lease]bool{}
	s.mu.Unlock()
	for l := range lost {
		l.end()
		l.place.abandon() // who hears that a lease is lost does not release it
	}
	s.watches.tellAll()
	if len(lost) == 0 {
		return
	}
	s.backend.work.Add(1)
	go func() { // look takes the Locker's locks, and may take its time
		defer s.backend.work.Done()
		for l := range lost {
			l.tell()
		}
	}()
}

// deadline is the instant before which the server does not end the session.
func (s *session) deadline() driver.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return driver.Instant{}
	}
	return s.proof.since.Add(s.timeout)
}

// lead returns the present deadline and a channel that is closed when it moves.
func (s *session) lead() (driver.Instant, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proof.since.Add(s.timeout), s.news
}

// cover waits until the session is sure to last for d from then.
func (s *session) cover(ctx context.Context, d time.Duration) error {
	for {
		deadline, news := s.lead()
		switch {
		case s.over() != nil:
			return errGone
		case deadline.Left() >= d:
			return nil
		}
		select {
		case <-news:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("the ZooKeeper session has %v left, and no server has confirmed more: %w", deadline.Left(), ctx.Err())
		}
	}
}

func (s *session) isUp() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// over returns why the session has ended, or nil.
func (s *session) over() error { return context.Cause(s.ctx) }

// use counts who needs the session; it is closed when nobody has for a while.
func (s *session) use(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users += n
	s.used = time.Now()
}

func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0 && time.Since(s.used) > idleAfter
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
