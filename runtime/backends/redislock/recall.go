package redislock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease that its process may keep while nobody uses it has to be told who else waits for
// it. Its process listens, on its own channel, since before the lock is asked for and until
// it is released. Nothing is asked for to catch up: what may have been missed counts as a
// message, and the lease goes back.
//
//	asked for -> registered, once the channel is subscribed to -> "wanted" is heard, by the acquisition's ID
//	could not subscribe, or the connection was lost meanwhile -> as if it was wanted
//	released, refused without a place in the queue, undone -> forgotten

// recallLimit is how long an acquisition waits for the first subscription of its process.
const recallLimit = 200 * time.Millisecond

// recall is an acquisition whose lease may be kept. The subscriber's mutex guards it.
type recall struct {
	user   waiter // of the channel
	own    *topic
	wanted bool   // perhaps
	look   func() // tells the Locker; nil as long as that has no lease
}

// register has a's process told when another one wants a's lock. It waits for the server.
func (s *subscriber) register(ctx context.Context, a *driver.Acquisition) {
	s.mu.Lock()
	r := s.recalls[a.ID]
	if r != nil { // an attempt made again
		s.mu.Unlock()
		return
	}
	r = &recall{user: waiter{c: make(chan struct{}, 1)}}
	r.own = s.joinLocked(&r.user, channelOfProcess(processOf(a.ID)), false)
	s.recalls[a.ID] = r
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	_ = s.confirm(ctx, r.own) // its state tells
	s.mu.Lock()
	defer s.mu.Unlock()
	r.wanted = r.wanted || r.own.state != standing
}

// forget undoes register.
func (s *subscriber) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(id)
}

func (s *subscriber) forgetLocked(id string) {
	if r := s.recalls[id]; r != nil {
		delete(s.recalls, id)
		s.leaveLocked(&r.user, r.own)
	}
}

// recallLocked notes that the lock of r is wanted. Whoever holds the mutex calls tell once it
// has let go of it.
func (s *subscriber) recallLocked(r *recall) {
	r.wanted = true
	if r.look != nil {
		s.looks = append(s.looks, r.look)
	}
}

// recallAllLocked is recallLocked for all that may have missed a message.
func (s *subscriber) recallAllLocked() {
	for _, r := range s.recalls {
		s.recallLocked(r)
	}
}

// tell has the Lockers look.
func (s *subscriber) tell() {
	s.mu.Lock()
	looks := s.looks
	s.looks = nil
	s.mu.Unlock()
	for _, look := range looks {
		look()
	}
}

// NotifyWanted implements [driver.Recaller].
func (b *Backend) NotifyWanted(a *driver.Acquisition, look func()) {
	s := b.subscriber
	s.mu.Lock()
	r := s.recalls[a.ID]
	wanted := r == nil || r.wanted
	if r != nil {
		r.look = look
	}
	s.mu.Unlock()
	if wanted {
		look()
	}
}
