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
// It ends by our own clock as well: a server that hears us while its answers are lost would keep
// the locks of holders that have lost them.
type session struct {
	*engine.Session
	backend *Backend
	class   class
	client  *client.Client
	closed  chan struct{} // closed when the client has ended

	// Only the client's goroutine uses these.
	timeout      time.Duration  // as the servers have granted it, or less
	dialed       driver.Instant // before the current connection was dialed
	firstTimeout time.Duration  // as they granted it first; 0 before
}

// reconnectWait is how long a request waits for another connection: an ensemble elects a
// leader within a second or two.
const reconnectWait = 3 * time.Second

func (b *Backend) newSession(c class, base *engine.Session) *session {
	return &session{Session: base, backend: b, class: c, closed: make(chan struct{}), timeout: c.timeout}
}

// session returns the session for leases of ttl, or of records. The caller calls Drop when
// it no longer uses it.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	lim, err := b.serverLimits(ctx)
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
	return b.open(ctx, classOf(ttl, lim.tick, lim.most))
}

func (b *Backend) open(ctx context.Context, c class) (*session, error) {
	if b.invalid != nil {
		return nil, b.invalid
	}
	s, err := b.sessions.Get(ctx, c)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w yet: %w", errNoConnection, err)
	}
	return s, err
}

// Open implements [engine.SessionServer].
func (s *session) Open(ctx context.Context) error {
	o, tried := &s.backend.options, make(chan error, 1)
	config := client.Config{
		Servers: s.backend.servers,
		Timeout: s.class.timeout,
		Dial:    o.Dialer,
		Logger:  o.Logger,
		Granted: s.grant,
		Tried: func(err error) {
			if err == nil { // the leader confirmed the session, but a majority may have another leader by now
				s.prove(s.dialed)
			}
			select {
			case tried <- err:
			default: // Open has returned; the client goes on trying
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
			return fmt.Errorf("%w: %w", errNoConnection, err)
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
	time.AfterFunc(s.class.tick+time.Millisecond, func() { s.prove(sent) })
	return nil
}

// prove sends a write that changes nothing: it deletes a node that does not exist. Its answer
// proves that the leader has heard of the session later than since.
func (s *session) prove(since driver.Instant) {
	s.client.Send(client.Delete(s.backend.probePath, client.AnyVersion), func(a client.Answer) {
		if committed(a.Err) {
			s.Extend(since, s.timeout, s.class.period)
		}
	})
}

// grant is called when a server has confirmed the session.
func (s *session) grant(timeout time.Duration, sent driver.Instant) {
	first, cut := s.firstTimeout == 0, timeout < s.timeout
	s.dialed, s.timeout = sent, min(timeout, s.timeout)
	if first {
		s.firstTimeout = timeout
	}
	switch {
	case first && cut && s.class.lease > 0:
		s.End(fmt.Errorf("%w: a server grants a session timeout of %v, and another has granted more: their maxSessionTimeout differ", driver.ErrInvalid, timeout))
	case first: // a majority has taken the new session
		s.Extend(sent, s.timeout, s.class.period)
	case cut: // the servers' longest timeout was lowered under us
		s.Shorten(sent.Add(timeout))
	}
}

// Destroy implements [engine.SessionServer]. The client ends the session when its context ends.
// Calls that wait by a node of the session are notified, and begin again.
func (s *session) Destroy(ctx context.Context) error {
	s.backend.hub.NotifyAll()
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
