package memlock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// subscription is one Locker's interest in one key. A release gives the turn
// to the one that waited longest, which then goes to the end: Lockers take
// turns, and none takes the key back at once from under another's nose.
type subscription struct {
	backend *Backend
	key     string
	locker  string
	c       chan struct{}
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(_ context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	s := &subscription{backend: b, key: a.Key, locker: lockerOf(a), c: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.keys[a.Key]
	if r == nil {
		r = &record{}
		b.keys[a.Key] = r
	}
	r.waiting = append(r.waiting, s)
	return s, nil
}

// lockerOf returns the part of an acquisition's id that names its Locker.
func lockerOf(a *driver.Acquisition) string {
	name, _, _ := strings.Cut(a.ID, ":")
	return name
}

func (s *subscription) C() <-chan struct{} { return s.c }

// Close ends the interest, and passes on a turn that came too late.
func (s *subscription) Close() {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.keys[s.key]
	if r == nil {
		return
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(other *subscription) bool { return other == s })
	if r.turn == s {
		r.turn = nil
	}
	if r.owner == "" && r.turn == nil {
		b.settle(s.key, r, time.Now())
	}
}
