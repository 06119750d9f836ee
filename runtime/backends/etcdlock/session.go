package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// idleFor is for how many of its ttls a session is kept that nobody uses.
	idleFor = 3
	// straggler is how long an attempt without an answer may be on its way.
	straggler = time.Minute
)

var (
	errSessionEnded = errors.New("the session has ended")
	errIdle         = errors.New("the session was idle")
)

// class is what acquisitions have in common that share a session. It names the
// Locker, so that Lockers which share a Backend have keys of their own and queue
// like processes.
type class struct {
	locker  string
	seconds int64 // of its ttl, as asked for
}

// session is one lease of etcd, which many locks share.
type session struct {
	backend *Backend
	class   class
	id      int64
	suffix  string // of its contenders' keys

	ready chan struct{} // closed when granted, or when that has failed
	err   error         // why it failed; set before ready is closed

	deadline atomic.Pointer[driver.Instant] // by the last acknowledged keep-alive
	ttl      atomic.Int64                   // as granted, in nanoseconds
	ended    context.Context                // done when it is over for us
	finish   context.CancelCauseFunc
	poke     chan struct{} // asks for a keep-alive now

	mu       sync.Mutex
	tried    chan struct{} // closed when the next keep-alive was answered, or has failed
	leases   map[*lease]struct{}
	users    int       // calls under way, places and leases
	unused   time.Time // since when there are none
	tombs    []tomb
	sweeping bool            // a goroutine removes some
	debts    map[string]debt // undos that failed, by their tombs' keys
	paying   bool            // a goroutine is at them
	keeping  *keeper         // of the goroutine that keeps it alive; nil while there is none
}

// session returns the session of c, granted if need be. The caller uses it until
// it calls drop.
func (b *Backend) session(ctx context.Context, c class) (*session, error) {
	for {
		s, err := b.lookUp(c)
		if err != nil {
			return nil, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			s.drop()
			return nil, fmt.Errorf("waiting for a lease of etcd: %w", ctx.Err())
		}
		switch {
		case s.err != nil:
			s.drop()
			return nil, s.err
		case s.alive():
			return s, nil
		}
		s.drop() // paused beyond its end, perhaps
	}
}

// lookUp returns the session of c, which may not be granted yet.
func (b *Backend) lookUp(c class) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Err() != nil {
		return nil, errClosed
	}
	s := b.sessions[c]
	if s == nil {
		s = &session{
			backend: b, class: c,
			id:     rand.Int64N(1<<62) + 1, // ours, so that a grant may be sent twice
			ready:  make(chan struct{}),
			poke:   make(chan struct{}, 1),
			tried:  make(chan struct{}),
			leases: map[*lease]struct{}{},
		}
		s.suffix = strconv.FormatInt(s.id, 16)
		s.ended, s.finish = context.WithCancelCause(context.Background())
		b.sessions[c] = s
		b.work.Go(s.live)
	}
	s.use()
	return s, nil
}

// sessionsOf returns the sessions of a Locker that an attempt may have used, those too
// of which the server may not know yet that they are over. One that is being granted
// is not there for the server to find, and not over.
func (b *Backend) sessionsOf(locker string) (all []*session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, s := range b.sessions {
		if c.locker == locker && s.isReady() {
			all = append(all, s)
		}
	}
	for s := range b.dying {
		if s.class.locker == locker {
			all = append(all, s)
		}
	}
	return all
}

// isReady reports whether the session was granted, or that has failed.
func (s *session) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func (s *session) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.unused = time.Now()
	}
}

// left is how long the session lasts without another keep-alive.
func (s *session) left() time.Duration { return s.deadline.Load().Left() }

// alive reports whether the session can be relied on. One whose deadline has
// passed is over, whatever the server may say later: its holders know of it.
func (s *session) alive() bool {
	if s.ended.Err() != nil {
		return false
	}
	if s.left() > 0 {
		return true
	}
	s.end(errSessionEnded)
	return false
}

// live is the life of the session, in a goroutine of its own.
func (s *session) live() {
	s.err = s.grant()
	if s.err != nil {
		s.remove(false)
		s.died() // of Close
		s.finish(s.err)
		close(s.ready)
		return
	}
	close(s.ready)
	s.keepAlive() // its streams end with the session
	s.revoke()
	s.forget()
	s.vacate()
}

// grant asks for the lease. Its end counts from before the first request: any of
// them may be the one that was done.
func (s *session) grant() error {
	first := driver.Now()
	var resp *pb.LeaseGrantResponse
	r, err := s.backend.do(s.ended, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		resp, err = s.backend.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: s.id, TTL: s.class.seconds}, options...)
		return err
	})
	seconds := s.class.seconds
	switch {
	case err == nil:
		seconds = resp.TTL // which may be more than was asked for
	case errors.Is(err, rpctypes.ErrLeaseExist) && r.silent: // by an attempt that had no answer
	case errors.Is(err, rpctypes.ErrLeaseTTLTooLarge):
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	default:
		return fmt.Errorf("no lease granted: %w", err)
	}
	s.extend(first, seconds)
	return nil
}

// extend notes what a request that was sent at sent was granted. It never moves
// the deadline back: answers may come out of order.
func (s *session) extend(sent driver.Instant, seconds int64) {
	ttl := time.Duration(min(seconds, int64(maxDuration/time.Second))) * time.Second
	until := sent.Add(ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttl.Store(int64(ttl))
	if old := s.deadline.Load(); old == nil || until.Left() > old.Left() {
		s.deadline.Store(&until)
	}
}

const maxDuration = time.Duration(1<<63 - 1)

// length is the session's ttl as granted.
func (s *session) length() time.Duration { return time.Duration(s.ttl.Load()) }

// end makes the session over for us: its leases are lost, its waiters are told.
// Its goroutine then gives it back to the server.
func (s *session) end(why error) {
	s.remove(true)
	s.finish(why)
	s.mu.Lock()
	var looks []func()
	for l := range s.leases {
		if look := l.lose(); look != nil {
			looks = append(looks, look)
		}
	}
	s.mu.Unlock()
	for _, look := range looks {
		look()
	}
	s.backend.noticeAll(s)
}

// remove makes room for a new session of the class.
func (s *session) remove(dying bool) {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.class] == s {
		delete(b.sessions, s.class)
		if dying {
			b.dying[s] = struct{}{}
		}
	}
}

// forget forgets the leases of a session that is over at the server: a release of theirs
// that had no answer may never be tried again.
func (s *session) forget() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.leases))
	s.mu.Unlock()
	for _, l := range all {
		l.forget()
	}
}

// vacate forgets the places in the queue of a session that is over at the server: whoever
// waited there may have gone for good, its undo in vain.
func (s *session) vacate() {
	b := s.backend
	var all []*place
	b.mu.Lock()
	for id, p := range b.places {
		if id.locker == s.class.locker { // which of them are ours is known in their turn
			p.users++
			all = append(all, p)
		}
	}
	b.mu.Unlock()
	for _, p := range all {
		if !p.enter(b.closed) {
			b.forsake(p)
			continue
		}
		if p.session == s {
			p.lost()
		}
		p.leave()
	}
}

// died notes that there is nothing left of the session at the server, or that we
// can't help it.
func (s *session) died() {
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	delete(s.backend.dying, s)
}

// revoke has the server end the session, so that what is left of it is free. It
// tries until it has an answer: the server may know of it longer than we do,
// after an election. Once the backend is closed, it tries once.
func (s *session) revoke() {
	b := s.backend
	defer s.died()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		last := b.closed.Err() != nil
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		_, err := b.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: s.id})
		cancel()
		err = rpctypes.Error(err)
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || last {
			return
		}
		if !b.pause(context.Background(), wait) {
			wait = 0
		}
	}
}
