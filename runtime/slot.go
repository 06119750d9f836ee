package lock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slot admits one re-entry at a time, first come first served, for goroutines
// that share one frame. It is a mutex that a context can end the wait for.
type slot struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

// enter takes the slot. The zero end waits until ctx ends.
func (s *slot) enter(ctx context.Context, p *Policy, end time.Time) error {
	s.mu.Lock()
	if !s.taken {
		s.taken = true
		s.mu.Unlock()
		return nil
	}
	if p.Try {
		s.mu.Unlock()
		return because(ErrNotAcquired, errHeld)
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()

	var timer <-chan time.Time
	if !end.IsZero() {
		t := time.NewTimer(time.Until(end))
		defer t.Stop()
		timer = t.C
	}
	var err error
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = gaveUp(ctx)
	case <-timer:
		err = waited(p)
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, turn)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the turn came at that very moment: pass it on
		s.leave()
	}
	return err
}

func (s *slot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.taken = false
		return
	}
	close(s.waiting[0])
	s.waiting = slices.Delete(s.waiting, 0, 1)
}
