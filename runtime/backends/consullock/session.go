package consullock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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
	id      string        // set by Open
	fenceAt atomic.Uint64 // the index of its fence as known last, 0 if it has none
}

// Open implements [engine.SessionServer]. A session whose creation has no answer
// holds nothing and ends by itself.
func (s *session) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
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
		return fmt.Errorf("create a session: %w", advised(err))
	}
	s.id = id
	s.extend(sent)
	s.backend.life.Go(func(context.Context) { s.watch(s.Context()) })
	return nil
}

// extend notes that the server has answered a request that was sent then. The next
// comes before less than a whole lease is left, for whoever acquires.
func (s *session) extend(sent driver.Instant) {
	length := s.class.sessionTTL()
	s.Extend(sent, length, (length-time.Duration(s.class))*3/4)
}

// KeepAlive implements [engine.SessionServer].
func (s *session) KeepAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	sent := driver.Now()
	entry, _, err := s.backend.client.Session().Renew(s.id, (&api.WriteOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("renew the session: %w", advised(err))
	case entry == nil:
		return s.isGone(ctx)
	}
	s.extend(sent)
	return nil
}

// isGone asks again for s, of which an answer knew nothing. Its error wraps driver.ErrLost if
// there is no session. A server that has just become the leader does not know yet all that
// its log says, and refuses only reads that ask for consistency (hashicorp/consul#2644).
func (s *session) isGone(ctx context.Context) error {
	entry, _, err := s.backend.client.Session().Info(s.id, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("look for the session: %w", advised(err))
	case entry == nil:
		return fmt.Errorf("%w: %w", driver.ErrLost, errNoSession)
	}
	return errors.New("the server has not caught up with its log yet")
}

// Destroy implements [engine.SessionServer].
func (s *session) Destroy(ctx context.Context) error {
	_, err := s.backend.client.Session().Destroy(s.id, (&api.WriteOptions{}).WithContext(ctx))
	return err
}

// gone ends the session, of which the server knows nothing.
func (s *session) gone() { s.End(fmt.Errorf("%w: %w", driver.ErrLost, errNoSession)) }

// watch hears at once when an operator ends the session, or its node leaves the catalog.
// Where the token may not read sessions keep-alives tell as well, later.
func (s *session) watch(ctx context.Context) {
	follow(ctx, 0, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
		entry, meta, err := s.backend.client.Session().Info(s.id, o)
		if err == nil && entry == nil {
			err = s.isGone(o.Context())
		}
		gone := errors.Is(err, driver.ErrLost)
		if gone {
			s.gone()
		}
		return meta, gone || err != nil && strings.Contains(err.Error(), "Permission denied"), err
	})
}

// A transaction that acquires is conditional on the fence of its session: a key
// beside the locks that does not exist until some attempt to acquire had no
// answer, and is written anew each time that one is undone. So an attempt that
// arrives after it was undone finds the fence changed, and takes nothing. The
// others under way on that session are refused as well, and sent again. The
// fence is locked by the session, so it goes when the session does, and then no
// attempt can succeed either.

// fence sees to it that no attempt of the acquisition that is still on its way takes
// anything, whichever session it is on.
func (b *Backend) fence(ctx context.Context, id string) error {
	for _, s := range b.sessions.All() {
		if err := s.fence(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// fence writes the fence of s anew.
func (s *session) fence(ctx context.Context, id string) error {
	reply, err := s.backend.write(ctx, ops{
		kv(api.KVLock, api.KVTxnOp{Key: fenceKey(s.id), Session: s.id, Value: []byte(id)}),
	})
	switch {
	case errors.Is(err, errNoSession), errors.Is(err, errDelayed): // the session has ended, and its fence is shut
		s.gone()
		return nil // whatever comes late is refused for that
	case err != nil:
		return err
	}
	s.fenced(reply.pair(fenceKey(s.id)))
	return nil
}

// fenced notes how the fence is: nil is that there is none, or that nobody has told. What is
// conditional on another is refused, and who sent it looks again.
func (s *session) fenced(p *api.KVPair) {
	if p == nil {
		p = &api.KVPair{}
	}
	s.fenceAt.Store(p.ModifyIndex)
}

// unfenced is the condition that the fence is as known.
func (s *session) unfenced() *api.TxnOp { return unchanged(fenceKey(s.id), s.fenceAt.Load()) }
