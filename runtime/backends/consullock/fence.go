package consullock

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A transaction that acquires is conditional on the fence of its session: a key
// beside the locks that does not exist until some attempt to acquire had no
// answer, and is written anew each time that one is undone. So an attempt that
// arrives after it was undone finds the fence changed, and takes nothing. The
// others under way on that session are refused as well, and sent again. The
// fence is locked by the session, so it goes when the session does, and then no
// attempt can succeed either. Where the keys of a session stay its fence does too, and
// is deleted after it; a process that dies leaves it for ever.

// attempts are what the unanswered attempts of one acquisition depend on.
type attempts struct {
	sessions map[*session]bool
	since    time.Time // when the acquisition was last asked for, or undone
	before   []byte    // the value of the key that the last of them found, if any
	undone   bool
}

const (
	// straggler is for how long an acquisition that was undone is remembered here.
	straggler = time.Minute
	// manyMemories is how many things are remembered before old ones go.
	manyMemories = 1000
)

// unanswered notes that an attempt of a on s has no answer.
func (b *Backend) unanswered(a *driver.Acquisition, s *session) {
	a.MayHaveRun = true
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.attempts[a.ID]
	if at == nil {
		at = &attempts{sessions: map[*session]bool{}}
		b.purge()
		b.attempts[a.ID] = at
	}
	at.sessions[s], at.since = true, time.Now()
}

// found notes what value was at the key when the attempt was sent, which depends on it.
// Any earlier one that may have taken the lock, or may yet, has found the same.
func (b *Backend) found(id string, v *seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.attempts[id]; at != nil && v.pair != nil {
		at.before = v.pair.Value
	}
}

// before returns the value that an attempt without an answer has found at the key.
func (b *Backend) before(id string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.attempts[id]; at != nil {
		return at.before
	}
	return nil
}

// purge drops what is remembered of acquisitions that were undone a while ago, or
// of which nobody has spoken for so long that their sessions were retired, and of
// turns. b is locked.
func (b *Backend) purge() {
	if len(b.attempts)+len(b.offers)+len(b.turns) < manyMemories {
		return
	}
	for id, at := range b.attempts {
		longest := time.Duration(0)
		for s := range at.sessions {
			longest = max(longest, s.ttl)
		}
		if age := time.Since(at.since); age > straggler+4*longest && (at.undone || longest > 0) {
			delete(b.attempts, id)
		}
	}
	for id, o := range b.offers {
		if o.age() > straggler+4*o.session.ttl {
			delete(b.offers, id)
		}
	}
	for key, t := range b.turns {
		if time.Since(t.since) > straggler {
			delete(b.turns, key)
		}
	}
}

// abandoned reports whether some attempt on s, or an offer of it, has neither an
// answer nor been undone since long ago, and its acquisition is no longer asked for and
// holds nothing: whoever was to undo it has given up, or tries in vain, see [debt].
func (b *Backend) abandoned(s *session) bool {
	b.mu.Lock()
	for _, o := range b.offers {
		if o.session == s && o.age() > 2*s.ttl {
			b.mu.Unlock()
			return true
		}
	}
	old := map[string]bool{}
	for id, at := range b.attempts {
		if at.sessions[s] && time.Since(at.since) > 2*s.ttl {
			old[id] = true
		}
	}
	all := b.living()
	b.mu.Unlock()
	if len(old) == 0 {
		return false
	}
	for _, s := range all { // the release undoes the attempts, on whichever session
		s.mu.Lock()
		for l := range s.leases {
			delete(old, l.id)
		}
		s.mu.Unlock()
	}
	return len(old) > 0
}

// fence sees to it that no attempt of the acquisition that is still on its way
// takes anything.
func (b *Backend) fence(ctx context.Context, id string) error {
	b.mu.Lock()
	at := b.attempts[id]
	var open []*session
	if at != nil {
		for s := range at.sessions {
			open = append(open, s)
		}
	}
	b.mu.Unlock()
	for _, s := range open {
		if err := s.fence(ctx, id); err != nil {
			return err
		}
		b.mu.Lock()
		delete(at.sessions, s)
		at.undone, at.since = true, time.Now()
		b.mu.Unlock()
	}
	return nil
}

// fence writes the fence of s anew.
func (s *session) fence(ctx context.Context, id string) error {
	key := fenceKey(s.id)
	pair, err := s.backend.write(ctx, ops{
		kv(api.KVLock, api.KVTxnOp{Key: key, Session: s.id, Value: []byte(id)}),
	})
	switch {
	case errors.Is(err, errNoSession), errors.Is(err, errDelayed): // which keeps its fence after it
		s.end()
		return nil // whatever comes late is refused for that
	case err != nil:
		return err
	}
	// Had it been this id's already, the server would have left it as it was.
	// Then it was written by an earlier try of this call, after all attempts.
	s.fenced(pair.ModifyIndex)
	return nil
}

// fenced notes the index of the fence, which only rises.
func (s *session) fenced(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenceAt = max(s.fenceAt, index)
}

func (s *session) fenceIndex() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenceAt
}
