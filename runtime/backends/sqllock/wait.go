package sqllock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Of a poller's looks. They come fast at first, and again whenever the lock has
// moved on, and then ever slower: at most an eighth of the wait is lost.
const (
	lookFirst = time.Millisecond
	lookFar   = 10 * time.Millisecond // with others before us in the queue
	lookMost  = 50 * time.Millisecond
	lookShare = 8
)

// foreignFor is for how long after an attempt that only a foreign user's raw lock
// refused the row's moves count for nothing: they are such attempts of others, and
// all would drive each other.
const foreignFor = time.Second

// subscription implements [driver.Subscription]: one Locker's interest in one key.
type subscription struct {
	backend *Backend
	key     string
	me      string // the Locker's number
	c       chan struct{}
	end     context.CancelFunc

	held    atomic.Bool   // by an acquisition of this Locker: there is nothing to look for
	own     atomic.Bool   // our own attempt has changed the row
	foreign atomic.Int64  // when a foreign user was last in our way, in ns since started
	poke    chan struct{} // has room for one: held has changed
}

// Subscribe implements [driver.Notifier]. With a Notifier it returns when the
// channel is listened to; if that fails, and without one, there is a poller for as
// long as the subscription lives. Strategies other than Table poll as well,
// because foreign users of the raw lock notify nobody.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	s := &subscription{backend: b, key: a.Key, me: process(a.ID), c: make(chan struct{}, 1), poke: make(chan struct{}, 1)}
	life, end := context.WithCancel(b.life)
	s.end = end
	polls := true
	if b.listener != nil {
		heard := b.listener.join(ctx, s)
		polls = !heard || b.strategy != Table
	}
	if !polls {
		return s, nil
	}
	b.waits.add(s)
	if !b.spawn(func() { s.poll(life) }) {
		s.Close()
		return nil, errClosed
	}
	return s, nil
}

func (s *subscription) C() <-chan struct{} { return s.c }

func (s *subscription) Close() {
	s.end()
	s.backend.waits.remove(s)
	if l := s.backend.listener; l != nil {
		l.leave(s)
	}
}

func (s *subscription) wake() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// poll looks at the row until ctx ends.
func (s *subscription) poll(ctx context.Context) {
	look := s.backend.sql.look.with(values{"key": []byte(s.key), "me": s.me})
	since, seen, ahead := time.Now(), int64(-1), int64(0)
	for {
		if s.held.Load() {
			select {
			case <-s.poke:
			case <-ctx.Done():
				return
			}
			since, seen, ahead = time.Now(), -1, 0
			continue
		}
		if !pause(ctx, lookAfter(time.Since(since), ahead)) {
			return
		}
		if s.held.Load() {
			continue
		}
		r, err := s.backend.attempt(ctx, pool{s.backend.db}, look)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			continue // as slow as after a long wait: since stays
		case len(r.rows) == 0: // removed: free
			s.wake()
			continue
		}
		free, version := r.rows[0][0] == 1, r.rows[0][2]
		ahead = r.rows[0][1] / entryLength
		if s.own.Swap(false) || s.foreigner() {
			seen = version
		}
		if version != seen {
			since, seen = time.Now(), version
		}
		if free {
			s.wake()
		}
	}
}

// foreigner reports whether a foreign user was in our way just now.
func (s *subscription) foreigner() bool {
	last := time.Duration(s.foreign.Load())
	return last != 0 && time.Since(started)-last < foreignFor
}

func lookAfter(waited time.Duration, ahead int64) time.Duration {
	if ahead > 1 {
		return min(max(waited/lookShare, lookFar), 2*lookMost)
	}
	return min(max(waited/lookShare, lookFirst), lookMost)
}

// waits are the subscriptions that poll, so that they need not while an
// acquisition of their own has the lock.
type waits struct {
	count atomic.Int64
	mu    sync.Mutex
	all   map[wait]*subscription
}

type wait struct{ key, me string }

func (w *waits) add(s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[wait]*subscription{}
	}
	w.all[wait{s.key, s.me}] = s
	w.count.Store(int64(len(w.all)))
}

func (w *waits) remove(s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[wait{s.key, s.me}] == s {
		delete(w.all, wait{s.key, s.me})
	}
	w.count.Store(int64(len(w.all)))
}

// tell says what came of an attempt to acquire.
func (w *waits) tell(a *driver.Acquisition, err error) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	s := w.all[wait{a.Key, process(a.ID)}]
	w.mu.Unlock()
	if s == nil {
		return
	}
	s.own.Store(true)
	var other *driver.HeldError
	if errors.As(err, &other) && other.RetryAfter == 0 {
		s.foreign.Store(int64(time.Since(started)))
	}
	held := err == nil
	if s.held.Swap(held) != held {
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
}
