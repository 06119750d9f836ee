package redislock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A process that may keep a lease while nobody uses it must hear when another process waits for
// the lock. It listens on its own channel from before it asks for the lock until the release.
// It does not ask what it has missed: if a message may have been lost, that counts as one, and
// the lease goes back.
//
//	asked for -> registered, once the channel is subscribed to -> "wanted" is heard, by the acquisition's ID
//	could not subscribe, or the connection was lost meanwhile -> as if it was wanted
//	released, refused without a place in the queue, undone -> forgotten

// recallLimit is how long an acquisition waits for the first subscription of its process.
const recallLimit = 200 * time.Millisecond

// holder is an acquisition whose lock others may want. The subscriber's mutex guards it.
type holder struct {
	lease        *lease // nil as long as it has none
	processTopic *topic // of its process, if the lease may be kept
	wanted       bool   // another process waits, or a message that one does may have been lost
	look         func() // tells the Locker that keeps the lease; nil before NotifyWanted
}

// register has a's process listen for others that want a's lock. It waits for the server.
func (s *subscriber) register(ctx context.Context, a *driver.Acquisition) {
	s.mu.Lock()
	if s.holders[a.ID] != nil { // an attempt made again
		s.mu.Unlock()
		return
	}
	h := &holder{processTopic: s.joinLocked(channelOfProcess(engine.Process(a.ID)), false)}
	s.holders[a.ID] = h
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	_ = s.awaitConfirmed(ctx, h.processTopic) // the state below says how it ended
	s.mu.Lock()
	defer s.mu.Unlock()
	h.wanted = h.wanted || h.processTopic.state != confirmed
}

// hold returns l, and has l learn when another process wants it.
func (s *subscriber) hold(l *lease) *lease {
	if s.active.Load() > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		h := s.holders[l.id]
		if h == nil {
			h = &holder{}
			s.holders[l.id] = h
		}
		h.lease = l
	}
	return l
}

// forget undoes register and hold.
func (s *subscriber) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(id)
}

func (s *subscriber) forgetLocked(id string) {
	if h := s.holders[id]; h != nil {
		delete(s.holders, id)
		s.leaveLocked(h.processTopic)
	}
}

// wantedLocked notes that the lock of h is wanted.
func (s *subscriber) wantedLocked(h *holder) {
	h.wanted = true
	if h.lease != nil {
		h.lease.wanted.Store(true)
	}
	if look := h.look; look != nil {
		s.life.Go(func(context.Context) { look() }) // without the mutex
	}
}

// missedLocked is wantedLocked for each lease that may be kept: a message may have been lost.
func (s *subscriber) missedLocked() {
	for _, h := range s.holders {
		if h.processTopic != nil {
			s.wantedLocked(h)
		}
	}
}

// NotifyWanted implements [driver.Recaller].
func (b *Backend) NotifyWanted(a *driver.Acquisition, look func()) {
	s := b.subscriber
	s.mu.Lock()
	h := s.holders[a.ID]
	wanted := h == nil || h.processTopic == nil || h.wanted
	if h != nil {
		h.look = look
	}
	s.mu.Unlock()
	if wanted {
		look()
	}
}
