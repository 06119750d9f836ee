package engine

import (
	"maps"
	"slices"
	"sync"
)

// Hub notifies subscribers by key that a lock may have become free. The zero Hub is empty and ready
// for use. Its methods may be called from any number of goroutines.
type Hub[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]map[*Subscriber[K]]struct{}
}

// Subscriber is the subscription of one waiter to one key; it is a driver.Subscription.
type Subscriber[K comparable] struct {
	hub     *Hub[K]
	key     K
	c       chan struct{}
	onClose func()
}

// Subscribe adds a subscriber of key. onClose, if it is not nil, is called once, when the
// subscriber was closed.
func (h *Hub[K]) Subscribe(key K, onClose func()) *Subscriber[K] {
	s := &Subscriber[K]{hub: h, key: key, c: make(chan struct{}, 1), onClose: onClose}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey == nil {
		h.byKey = map[K]map[*Subscriber[K]]struct{}{}
	}
	all := h.byKey[key]
	if all == nil {
		all = map[*Subscriber[K]]struct{}{}
		h.byKey[key] = all
	}
	all[s] = struct{}{}
	return s
}

// Notify notifies the subscribers of key. It does not block: a subscriber with an unread notice
// gets no second one.
func (h *Hub[K]) Notify(key K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.byKey[key] {
		s.Notify()
	}
}

// NotifyAll notifies all subscribers, for example after a gap in which notices may have been lost.
func (h *Hub[K]) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.byKey {
		for s := range all {
			s.Notify()
		}
	}
}

// Keys returns the keys that have subscribers.
func (h *Hub[K]) Keys() []K {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.byKey))
}

// Waits reports whether key has a subscriber.
func (h *Hub[K]) Waits(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byKey[key]) > 0
}

// Notify notifies only this subscriber.
func (s *Subscriber[K]) Notify() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// C implements driver.Subscription.
func (s *Subscriber[K]) C() <-chan struct{} { return s.c }

// Close implements driver.Subscription. A second call does nothing.
func (s *Subscriber[K]) Close() {
	h := s.hub
	h.mu.Lock()
	all := h.byKey[s.key]
	_, open := all[s]
	delete(all, s)
	if open && len(all) == 0 {
		delete(h.byKey, s.key)
	}
	h.mu.Unlock()
	if open && s.onClose != nil {
		s.onClose()
	}
}
