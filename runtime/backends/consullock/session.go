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
// leaves nothing. Where class.keep says so Consul leaves them, unlocked: such a
// session holds the locks whose keys were there before.
type session struct {
	*engine.Session
	backend *Backend
	class   class
	id      string        // set by Open
	fenceAt atomic.Uint64 // the index of its fence, 0 if it has none, as known; it only rises
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
		LockDelay: s.backend.lockDelay,
	}
	if s.class.keep {
		e.Behavior = api.SessionBehaviorRelease
	}
	if e.LockDelay < 0 {
		e.LockDelay = time.Nanosecond // the client takes 0 for unset
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
	s.Extend(sent, length, max((length-s.class.reach)*3/4, length/16))
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
		return fmt.Errorf("%w: %w", driver.ErrLost, errNoSession)
	}
	s.extend(sent)
	return nil
}

// Undo implements [engine.SessionServer].
func (s *session) Undo(ctx context.Context, a *driver.Acquisition) error {
	return s.backend.undo(ctx, a)
}

// Destroy implements [engine.SessionServer]. It takes away the fence where that stays:
// nothing that comes late depends on it any more.
func (s *session) Destroy(ctx context.Context) error {
	_, err := s.backend.client.Session().Destroy(s.id, (&api.WriteOptions{}).WithContext(ctx))
	if err == nil && s.class.keep {
		_, err = s.backend.write(ctx, ops{kv(api.KVDelete, api.KVTxnOp{Key: fenceKey(s.id)})})
	}
	return err
}

// lasts waits until the session lasts for ttl from now on; or nearly, where Consul lets
// no session last longer than the lease.
func (s *session) lasts(ctx context.Context, ttl time.Duration) error {
	length := s.class.sessionTTL()
	return s.Await(ctx, min(ttl, max(length-30*time.Second, length-length/16)))
}

// gone ends the session, of which the server knows nothing.
func (s *session) gone() { s.End(fmt.Errorf("%w: %w", driver.ErrLost, errNoSession)) }

// watch hears at once when an operator ends the session, or its node leaves the catalog.
func (s *session) watch(ctx context.Context) {
	p := pace{}
	for index := uint64(0); ; {
		asking, cancel := context.WithTimeout(ctx, waitWithin)
		q := (&api.QueryOptions{WaitIndex: index, WaitTime: waitTime}).WithContext(asking)
		entry, meta, err := s.backend.client.Session().Info(s.id, q)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && strings.Contains(err.Error(), "Permission denied"):
			return // keep-alives tell as well, later
		case err != nil:
			index = 0
		case entry == nil:
			s.gone()
			return
		default:
			index = following(index, meta.LastIndex)
		}
		if !p.wait(ctx, err != nil) {
			return
		}
	}
}

// A transaction that acquires is conditional on the fence of its session: a key
// beside the locks that does not exist until some attempt to acquire had no
// answer, and is written anew each time that one is undone. So an attempt that
// arrives after it was undone finds the fence changed, and takes nothing. The
// others under way on that session are refused as well, and sent again. The
// fence is locked by the session, so it goes when the session does, and then no
// attempt can succeed either. Where the keys of a session stay its fence does too, and
// is deleted after it; a process that dies leaves it for ever.

// attempts are what is to be known of an acquisition that may have run without an
// answer, or whose key was there before.
type attempts struct {
	on     map[*session]bool // where an attempt has no answer
	before []byte            // the value that the last of them found at the key
}

// attempted notes that a is about to be tried where v was seen.
func (b *Backend) attempted(a *driver.Acquisition, v *seen) {
	if v.pair != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.attemptsLocked(a.ID).before = v.pair.Value
	}
}

// unanswered notes that an attempt of a on s has no answer.
func (b *Backend) unanswered(a *driver.Acquisition, s *session) {
	a.MayHaveRun = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attemptsLocked(a.ID).on[s] = true
}

func (b *Backend) attemptsLocked(id string) *attempts {
	at := b.attempts[id]
	if at == nil {
		at = &attempts{on: map[*session]bool{}}
		b.attempts[id] = at
	}
	return at
}

// forgetAttempts notes that the acquisition has nothing at the server any more.
func (b *Backend) forgetAttempts(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.attempts, id)
}

// valueBefore returns the value that the acquisition has found at its key.
func (b *Backend) valueBefore(id string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.attempts[id]; at != nil {
		return at.before
	}
	return nil
}

// unansweredOn returns the sessions on which an attempt of the acquisition has no answer.
func (b *Backend) unansweredOn(id string) (all []*session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.attempts[id]; at != nil {
		for s := range at.on {
			all = append(all, s)
		}
	}
	return all
}

// fence sees to it that no attempt of the acquisition that is still on its way
// takes anything.
func (b *Backend) fence(ctx context.Context, id string) error {
	for _, s := range b.unansweredOn(id) {
		if err := s.fence(ctx, id); err != nil {
			return err
		}
		b.mu.Lock()
		if at := b.attempts[id]; at != nil {
			delete(at.on, s)
		}
		b.mu.Unlock()
	}
	return nil
}

// fence writes the fence of s anew.
func (s *session) fence(ctx context.Context, id string) error {
	reply, err := s.backend.write(ctx, ops{
		kv(api.KVLock, api.KVTxnOp{Key: fenceKey(s.id), Session: s.id, Value: []byte(id)}),
	})
	switch {
	case errors.Is(err, errNoSession), errors.Is(err, errDelayed): // which keeps its fence after it
		s.gone()
		return nil // whatever comes late is refused for that
	case err != nil:
		return err
	}
	// Had it been this id's already, it was written by an earlier try of this call.
	if p := reply.pair(fenceKey(s.id)); p != nil {
		s.fenced(p.ModifyIndex)
	}
	return nil
}

// fenced notes the index of the fence.
func (s *session) fenced(index uint64) {
	for old := s.fenceAt.Load(); index > old && !s.fenceAt.CompareAndSwap(old, index); old = s.fenceAt.Load() {
	}
}

// unfenced is the condition that the fence is as known.
func (s *session) unfenced() *api.TxnOp { return unchanged(fenceKey(s.id), s.fenceAt.Load()) }
