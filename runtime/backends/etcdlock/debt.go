package etcdlock

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// retryUndo is how long to wait before what is owed is tried again: the Locker
// tries it more often, while it does.
const retryUndo = time.Second

// debt is an undo that failed, or the mark that a lease is due which nobody frees again.
// The session's keep-alives would keep for ever what is not freed, so the session tries it
// again until it is answered or is over.
type debt struct {
	keys  keys
	late  bool
	queue bool // an earlier one's place in the queue is to be given up too, as with Acquisition.Queue
}

// owe has the session pay d, in the background.
func (s *session) owe(d debt) {
	s.mu.Lock()
	if s.debts == nil {
		s.debts = map[string]debt{}
	}
	old := s.debts[d.keys.tomb]
	d.late, d.queue = d.late || old.late, d.queue || old.queue
	s.debts[d.keys.tomb] = d
	paying := s.paying
	s.paying = true
	s.mu.Unlock()
	if !paying {
		s.backend.background(s.pay)
	}
}

// settle notes that nothing is owed of the acquisition of k any more.
func (s *session) settle(k keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.debts, k.tomb)
}

// pay tries what is owed until nothing is, or the session has ended.
func (s *session) pay() {
	for s.backend.pause(s.ended, retryUndo) {
		for d, ok := s.owed(); ok; d, ok = s.owed() {
			if s.payOne(d) != nil {
				break // any of them is the next one
			}
			s.settle(d.keys)
		}
		if s.free() {
			return
		}
	}
}

// owed returns one of the debts, if there are any.
func (s *session) owed() (d debt, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.debts {
		return d, true
	}
	return debt{}, false
}

// free reports whether nothing is owed, and that the next debt needs a goroutine anew.
func (s *session) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paying = len(s.debts) > 0
	return !s.paying
}

// payOne undoes in the turn of the key's place, as Undo does.
func (s *session) payOne(d debt) error {
	ctx, cancel := context.WithTimeout(s.ended, s.backend.options.AttemptTimeout)
	defer cancel()
	p, err := s.backend.enter(ctx, d.keys)
	if err != nil {
		return err
	}
	defer p.leave()
	if p.session == s && p.serves(&driver.Acquisition{ID: d.keys.id, Queue: d.queue}) {
		if err := p.giveUp(ctx); err != nil {
			return err
		}
	}
	return s.undo(ctx, d.keys, d.late)
}
