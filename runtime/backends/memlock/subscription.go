package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// subscription is one Locker's interest in one key. A release gives the turn
// to the one that waited longest, which then goes to the end: Lockers take
// turns, and none takes the key back before another has had it.
type subscription struct {
	shard  *shard
	key    string
	locker string
	c      chan struct{}
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(_ context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if a.Mode.Kind != 0 {
		sub := b.hub.Subscribe(a.ID, nil)
		return sub, nil
	}
	s := b.shard(a.Key)
	sub := &subscription{shard: s, key: a.Key, locker: engine.Process(a.ID), c: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mutexes[a.Key]
	if m == nil {
		m = &mutex{}
		s.mutexes[a.Key] = m
	}
	m.waiting = append(m.waiting, sub)
	return sub, nil
}

func (sub *subscription) C() <-chan struct{} { return sub.c }

// Close ends the subscription, and passes on a turn that came too late.
func (sub *subscription) Close() {
	s := sub.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mutexes[sub.key]
	if m == nil {
		return
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(other *subscription) bool { return other == sub })
	if m.turn == sub {
		m.turn = nil
	}
	if m.owner == "" && m.turn == nil {
		s.passLocked(sub.key, m, time.Now())
	}
}
