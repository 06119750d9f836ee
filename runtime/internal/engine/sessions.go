package engine

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// SessionServer is an engine's side of a session, in a type that embeds *[Session]. Each method
// makes one attempt, in the time that its context has.
type SessionServer interface {
	// Open makes the session at the server, and calls Extend.
	Open(ctx context.Context) error

	// KeepAlive asks the server to keep the session, and calls Extend with what the answer proves.
	// An error that wraps driver.ErrLost says that the server knows no such session. Calls overlap
	// if an answer is slow.
	KeepAlive(ctx context.Context) error

	// Destroy ends the session at the server, after it has ended here. It is called until it
	// returns nil, and for the last time when the last Locker closes.
	Destroy(ctx context.Context) error

	// Base returns the Session that the type embeds.
	Base() *Session
}

// Sessions are the sessions of a Backend, one for each class of holds that may share
// one. Make it with [NewSessions]. Its methods may be called from any number of
// goroutines.
type Sessions[C comparable, S SessionServer] struct {
	life  *Life
	begin func(C, *Session) S
	undo  func(context.Context, *driver.Acquisition) error

	mu      sync.Mutex
	byClass map[C]S
	all     map[*Session]S // the sessions of byClass, and those that have ended here but not yet at the server
}

// ClassTTL returns the longest ttl of the leases that share a session with a lease of length ttl.
// There are eight such classes for every doubling of the ttl. The ttls of one policy, with the time
// for which a lease may be handed on and without it, are in one class.
func ClassTTL(ttl time.Duration) time.Duration {
	const tolerance = 25 // a ttl may be longer than its step by one part in this many
	base := max(ttl-ttl/tolerance, 1)
	step := time.Duration(1) << max(bits.Len64(uint64(base))-4, 0)
	top := (base + step - 1) / step * step
	return top + top/(tolerance-1) + 1
}

// NewSessions returns the sessions of a Backend; none is open yet. begin returns the engine's side
// of a new one. It must not block or call a method of Sessions. undo undoes what an acquisition
// took, or may still take. It forgets the acquisition if that ended with its session.
func NewSessions[C comparable, S SessionServer](life *Life, begin func(C, *Session) S, undo func(context.Context, *driver.Acquisition) error) *Sessions[C, S] {
	return &Sessions[C, S]{life: life, begin: begin, undo: undo, byClass: map[C]S{}, all: map[*Session]S{}}
}

// Get returns the session of class, and opens one if none is alive. The caller uses it until it
// calls Drop. The error is driver.ErrClosed after the last Close; otherwise it is that of
// SessionServer.Open, or wraps that of ctx.
func (ss *Sessions[C, S]) Get(ctx context.Context, class C) (S, error) {
	var none S
	for {
		server, err := ss.lookUp(class)
		if err != nil {
			return none, err
		}
		s := server.Base()
		select {
		case <-s.opened:
			err = s.failed
		case <-ctx.Done():
			err = fmt.Errorf("waiting for a session: %w", ctx.Err())
		}
		if err == nil && s.Alive() {
			return server, nil
		}
		s.Drop()
		if err != nil {
			return none, err
		}
	}
}

// lookUp returns the session of class, which may not be open yet.
func (ss *Sessions[C, S]) lookUp(class C) (S, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	server, ok := ss.byClass[class]
	if !ok {
		s := newSession(ss.life)
		server = ss.begin(class, s)
		s.server, s.undo = server, ss.undo
		s.retire = func() { ss.retire(class, s) }
		s.forget = func() { ss.forget(s) }
		if !ss.life.Go(s.run) {
			return server, driver.ErrClosed
		}
		ss.byClass[class], ss.all[s] = server, server
	}
	server.Base().Use()
	return server, nil
}

func (ss *Sessions[C, S]) retire(class C, s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if server, ok := ss.byClass[class]; ok && server.Base() == s {
		delete(ss.byClass, class)
	}
}

func (ss *Sessions[C, S]) forget(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.all, s)
}

// All returns the sessions that may have something at the server: those that were opened, and for
// which the server has not confirmed the end.
func (ss *Sessions[C, S]) All() (open []S) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s, server := range ss.all {
		select {
		case <-s.opened:
			open = append(open, server)
		default:
		}
	}
	return open
}

// Undo undoes a. If that fails, each session keeps trying. The Locker gives up when the lease that
// was asked for would be over, but a session may last longer.
func (ss *Sessions[C, S]) Undo(ctx context.Context, a *driver.Acquisition) error {
	err := ss.undo(ctx, a)
	for _, server := range ss.All() {
		if err != nil {
			server.Base().AddUndo(a)
		} else {
			server.Base().DropUndo(a.ID)
		}
	}
	return err
}

// Close ends all sessions. It is called by [Life.Close], after which no session is opened.
func (ss *Sessions[C, S]) Close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	clear(ss.byClass)
	for s := range ss.all {
		s.cancel(driver.ErrClosed)
	}
}

// run keeps a session at the server, from its opening to its end.
func (s *Session) run(context.Context) {
	if err := s.server.Open(s.ctx); err != nil {
		s.End(err)
		s.failed = context.Cause(s.ctx) // not err if Close came first
		s.forget()
		close(s.opened)
		return
	}
	close(s.opened)
	s.keep()
	s.notifyLoss()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, longestRetry) {
		last := s.life.Closed()
		ctx, cancel := context.WithTimeout(context.Background(), destroyWithin)
		err := s.server.Destroy(ctx)
		cancel()
		if err == nil || last {
			break
		}
		Pause(s.life.Context(), wait)
	}
	for _, l := range s.all() {
		l.Close()
	}
	s.forget()
}
