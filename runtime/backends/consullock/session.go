package consullock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// session is a session of Consul's, which the leases of a class share. When it
// ends, Consul deletes the keys that are locked by it, so that a process that dies
// leaves nothing.
type session struct {
	*engine.Session
	backend *Backend
	class   class
	id      string // set by Open
}

// Open implements [engine.SessionServer]. A session whose creation has no answer
// holds nothing and ends by itself.
func (s *session) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	e := &api.SessionEntry{
		Name:      "lockgen",
		TTL:       s.class.sessionTTL().String(),
		Behavior:  api.SessionBehaviorDelete,
		LockDelay: max(s.backend.lockDelay, noLockDelay),
	}
	sent := driver.Now()
	id, _, err := s.backend.client.Session().CreateNoChecks(e, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("create a session: %w", explained(err))
	}
	s.id = id
	s.extend(sent)
	s.backend.life.Go(func(context.Context) { s.watch(s.Context()) })
	return nil
}

// extend notes that the server has answered a keep-alive that was sent then. The next follows
// while a whole lease is left, which an acquisition needs.
func (s *session) extend(sent driver.Instant) {
	length := s.class.sessionTTL()
	s.Extend(sent, length, (length-time.Duration(s.class))*3/4)
}

// KeepAlive implements [engine.SessionServer].
func (s *session) KeepAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	sent := driver.Now()
	entry, _, err := s.backend.client.Session().Renew(s.id, (&api.WriteOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("renew the session: %w", explained(err))
	case entry == nil:
		return s.confirmLost(ctx)
	}
	s.extend(sent)
	return nil
}

// confirmLost asks again for s, which an answer did not know. Its error wraps driver.ErrLost if the
// session does not exist. A server that has just become the leader has not read all of its log
// yet, and only refuses reads that ask for consistency (hashicorp/consul#2644).
func (s *session) confirmLost(ctx context.Context) error {
	entry, _, err := s.backend.client.Session().Info(s.id, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("look for the session: %w", explained(err))
	case entry == nil:
		return fmt.Errorf("%w: %w", driver.ErrLost, errSessionEnded)
	}
	return errors.New("the server has not caught up with its log yet")
}

// Destroy implements [engine.SessionServer].
func (s *session) Destroy(ctx context.Context) error {
	_, err := s.backend.client.Session().Destroy(s.id, (&api.WriteOptions{}).WithContext(ctx))
	return err
}

// endLost ends the session, which the server does not know.
func (s *session) endLost() { s.End(fmt.Errorf("%w: %w", driver.ErrLost, errSessionEnded)) }

// watch ends s at once when an operator ends the session, or its node leaves the catalog. If the
// token may not read sessions, the next keep-alive does.
func (s *session) watch(ctx context.Context) {
	queryUntilDone(ctx, 0, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
		entry, meta, err := s.backend.client.Session().Info(s.id, o)
		if err == nil && entry == nil {
			err = s.confirmLost(o.Context())
		}
		gone := errors.Is(err, driver.ErrLost)
		if gone {
			s.endLost()
		}
		return meta, gone || err != nil && strings.Contains(err.Error(), "Permission denied"), err
	})
}
