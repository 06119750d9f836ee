package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// session is one session of ZooKeeper, which all leases of one length share. The
// methods that make requests are in request.go.
//
// It ends by our own clock, too, when nothing has proved in time that it lives: a
// server that hears us, while its answers are lost, takes each connection for a sign
// of life, and would keep the locks of holders that have lost them.
type session struct {
	*engine.Session
	backend *Backend
	span    span
	client  *client.Client
	watches watches
	closed  chan struct{} // closed when the client has ended

	mu    sync.Mutex // guards proof
	proof proof
}

// patience is how long a request waits for a connection that was lost: an ensemble
// elects a leader within a second or two.
const patience = 3 * time.Second

func (b *Backend) newSession(sp span, base *engine.Session) *session {
	return &session{
		Session: base,
		backend: b,
		span:    sp,
		watches: watches{byPath: map[string]map[*watch]bool{}},
		closed:  make(chan struct{}),
		proof:   proof{tick: sp.tick, timeout: sp.timeout},
	}
}

// session returns the session for leases of ttl. The caller calls Drop when it no
// longer uses it.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	return b.sessionFor(ctx, func(ctx context.Context) (span, error) { return b.spanFor(ctx, ttl) })
}

// sessionFor is session for what spanFor returns, which is asked again when more is known of
// the servers' limits.
func (b *Backend) sessionFor(ctx context.Context, spanFor func(context.Context) (span, error)) (*session, error) {
	for {
		sp, err := spanFor(ctx)
		if err != nil {
			return nil, err
		}
		s, err := b.sessions.Get(ctx, sp)
		switch {
		case errors.Is(err, errOutside): // the limits are known now
			continue
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("%w, there is no connection to ZooKeeper yet: %w", errNotSent, err)
		}
		return s, err
	}
}

// Open implements [engine.SessionServer].
func (s *session) Open(ctx context.Context) (err error) {
	config := s.backend.config(s.span.timeout, max(s.span.timeout/3, 250*time.Millisecond))
	config.Granted, config.Event = s.granted, s.watches.event
	var opened <-chan error
	s.client, opened, err = s.backend.connect(ctx, config, func(err error) {
		s.End(err)
		close(s.closed)
	})
	if err != nil {
		return err
	}
	if err = <-opened; ctx.Err() != nil {
		return context.Cause(ctx) // errOutside
	}
	return err
}

// KeepAlive implements [engine.SessionServer]: it makes two requests a tick apart,
// the second of which proves that the leader has heard of the session since the first;
// see proof. The second is a write that changes nothing, the deletion of what is not
// there, which a majority agrees on all the same. Nobody waits for that.
func (s *session) KeepAlive(ctx context.Context) error {
	if _, err := s.now(ctx, client.Exists("/")); err != nil {
		return err
	}
	time.AfterFunc(s.span.tick+time.Millisecond, func() {
		_ = s.send(client.Delete(s.backend.probe, client.AnyVersion), func(client.Answer) {})
	})
	return nil
}

// Undo implements [engine.SessionServer].
func (s *session) Undo(ctx context.Context, a *driver.Acquisition) error {
	return s.backend.entries.undo(ctx, a)
}

// Destroy implements [engine.SessionServer]. The client ends with the session's
// context.
func (s *session) Destroy(ctx context.Context) error {
	s.backend.entries.endSession(s)
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// granted is called when a server has confirmed the session.
func (s *session) granted(g client.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.proof.begun
	cut := g.Timeout < s.proof.timeout
	if cut {
		s.backend.outside(g.Timeout)
		s.proof.timeout = g.Timeout
	}
	s.proof.opened(g.Sent)
	switch {
	case first && cut:
		s.End(errOutside)
	case first: // a majority has agreed on a new session
		s.Extend(g.Sent, s.proof.timeout, s.span.beat)
	case cut: // the servers' longest timeout was lowered under us
		s.Shorten(g.Sent.Add(g.Timeout))
	}
}

// answered notes the answer to a request that was sent at.
func (s *session) answered(sent driver.Instant, at time.Time, wrote bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, more := s.proof.answered(sent, at, wrote); more {
		s.Extend(since, s.proof.timeout, s.span.beat)
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
