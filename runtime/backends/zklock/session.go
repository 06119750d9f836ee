package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// session is one session of ZooKeeper, which all leases of one length share. The
// methods that make requests are in request.go.
//
// It ends by our own clock, too: a server that hears us, while its answers are lost, would
// keep the locks of holders that have lost them.
type session struct {
	*engine.Session
	backend *Backend
	span    span
	client  *client.Client
	closed  chan struct{} // closed when the client has ended

	// Only the client's goroutine uses these.
	timeout time.Duration  // as the servers have granted it, or less
	granted driver.Instant // from before the last connection was asked for
	first   time.Duration  // what they have granted first
}

// patience is how long a request waits for a connection that was lost: an ensemble
// elects a leader within a second or two.
const patience = 3 * time.Second

func (b *Backend) newSession(sp span, base *engine.Session) *session {
	return &session{Session: base, backend: b, span: sp, closed: make(chan struct{}), timeout: sp.timeout}
}

// session returns the session for leases of ttl, or of records. The caller calls Drop when
// it no longer uses it.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	lim, err := b.learn(ctx)
	if err != nil {
		return nil, err
	}
	longest := longestLease(lim.tick, lim.most)
	if ttl == recordsTTL {
		ttl = min(max(recordsLength, lim.least), longest)
	} else if ttl < lim.least || ttl > longest {
		return nil, fmt.Errorf("%w: a lease of %v; with the session timeouts of this ZooKeeper (minSessionTimeout, maxSessionTimeout) zklock takes from %v to %v",
			driver.ErrInvalid, ttl, lim.least, longest)
	}
	return b.open(ctx, spanOf(ttl, lim.tick, lim.most))
}

func (b *Backend) open(ctx context.Context, sp span) (*session, error) {
	if b.invalid != nil {
		return nil, b.invalid
	}
	s, err := b.sessions.Get(ctx, sp)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w yet: %w", errAway, err)
	}
	return s, err
}

// Open implements [engine.SessionServer].
func (s *session) Open(ctx context.Context) error {
	o, tried := &s.backend.options, make(chan error, 1)
	config := client.Config{
		Servers: s.backend.servers,
		Timeout: s.span.timeout,
		Dial:    o.Dialer,
		Logger:  o.Logger,
		Granted: s.grant,
		Tried: func(err error) {
			if err == nil { // the leader was asked for the session, but only a majority can confirm who that is
				s.prove(s.granted)
			}
			select {
			case tried <- err:
			default: // a session that stands goes on trying
			}
		},
	}
	for _, auth := range o.Auth {
		config.Identities = append(config.Identities, client.Identity(auth))
	}
	s.client = client.New(config)
	if !s.backend.life.Go(func(context.Context) {
		s.End(s.client.Run(ctx))
		close(s.closed)
	}) {
		return driver.ErrClosed
	}
	select {
	case err := <-tried:
		if err != nil {
			return fmt.Errorf("%w: %w", errAway, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// KeepAlive implements [engine.SessionServer]: it makes two requests a tick apart. The
// second proves that the leader has heard of the session since the first was sent: see
// DESIGN.md.
func (s *session) KeepAlive(ctx context.Context) error {
	sent := driver.Now()
	if _, err := await(ctx, s.ask(client.Exists("/"))); err != nil {
		return err
	}
	time.AfterFunc(s.span.tick+time.Millisecond, func() { s.prove(sent) })
	return nil
}

// prove makes a write that changes nothing, the deletion of what is not there. With its
// answer it is proved that the leader has heard of the session later than since.
func (s *session) prove(since driver.Instant) {
	s.client.Send(client.Delete(s.backend.probe, client.AnyVersion), func(a client.Answer) {
		if committed(a.Err) {
			s.Extend(since, s.timeout, s.span.beat)
		}
	})
}

// grant is called when a server has confirmed the session.
func (s *session) grant(timeout time.Duration, sent driver.Instant) {
	first, cut := s.first == 0, timeout < s.timeout
	s.granted, s.timeout = sent, min(timeout, s.timeout)
	if first {
		s.first = timeout
	}
	switch {
	case first && cut && s.span.lease > 0:
		s.End(fmt.Errorf("%w: a server grants a session timeout of %v, and another has granted more: their maxSessionTimeout differ", driver.ErrInvalid, timeout))
	case first: // a majority has agreed on a new session
		s.Extend(sent, s.timeout, s.span.beat)
	case cut: // the servers' longest timeout was lowered under us
		s.Shorten(sent.Add(timeout))
	}
}

// Destroy implements [engine.SessionServer]. The client ends with the session's
// context. Who waits by a node of the session is told, and begins again.
func (s *session) Destroy(ctx context.Context) error {
	s.backend.hub.NotifyAll()
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
