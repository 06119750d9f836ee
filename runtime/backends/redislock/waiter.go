package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// DESIGN.md ("The protocol") tells how a lock is given to a waiter, and what undoes that.

// waiterKey names a waiter. At most one goroutine of a Locker competes for a mutex; for other
// kinds of lock, id says which goroutine it is.
type waiterKey struct{ process, lock, id string }

func waiterKeyOf(a *driver.Acquisition) waiterKey {
	key := waiterKey{process: engine.Process(a.ID), lock: a.Key}
	if a.Mode.Kind != 0 {
		key.id = a.ID
	}
	return key
}

// waiter is a Locker that waits for a lock, or is about to. The subscriber's mutex guards it.
type waiter struct {
	subscriber    *subscriber
	key           waiterKey
	c             chan struct{}
	attempting    bool   // an attempt is under way, or was refused, and has no subscription yet
	subscriptions int    // open ones
	processTopic  *topic // of its process
	redisson      *topic // of the lock, while a client of Redisson holds it
	sharded       func() // ends listening on the sharded channel

	id      string         // of the acquisition
	sent    driver.Instant // when its last attempt that was answered was sent
	micros  int64          // the server's time in that answer
	granted *grant
	since   int64 // the server's time when its process began to wait, or 0
}

// grant is a release's message to the process that it has given the lock.
type grant struct {
	first  uint64
	micros int64 // the server's time
	hold   int   // see grant.lua
}

const (
	holdBriefly = 1 // others of ours wait
	holdOnce    = 2 // a client of Redisson waits
)

func channelOfProcess(process string) string { return "lockgen:process:" + process }

func isProcess(channel string) bool { return strings.HasPrefix(channel, "lockgen:process:") }

// queueEntry is the member of the queue that stands for a. It is the same for all of a's attempts.
func queueEntry(a *driver.Acquisition) string {
	return fmt.Sprintf("%s %d %d", a.ID, grantedTTL(a).Milliseconds(), a.Tokens)
}

// grantedTTL is the length of the lease that a release grants to a.
func grantedTTL(a *driver.Acquisition) time.Duration {
	if a.NoRenewal {
		return a.TTL
	}
	return min(a.TTL, grantLease)
}

// waiter returns the waiter of a, or nil. It makes one if subscribe is set, which counts one more
// subscription, or if the process listens already: else nobody would hear a message for it.
func (s *subscriber) waiter(a *driver.Acquisition, subscribe bool) *waiter {
	if !subscribe && s.active.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := waiterKeyOf(a)
	w := s.waiters[key]
	if w == nil {
		w = &waiter{subscriber: s, key: key, c: make(chan struct{}, 1), id: a.ID}
		w.processTopic = s.joinLocked(channelOfProcess(key.process), false)
		s.waiters[key] = w
	}
	if w.id != a.ID {
		w.id, w.granted, w.micros = a.ID, nil, 0
		if w.subscriptions == 0 { // nobody of the process has waited in between
			w.since = 0
		}
	}
	w.attempting = !subscribe
	if subscribe {
		w.subscriptions++
	}
	return w
}

// claim returns the lease that was granted to a, or nil.
func (w *waiter) claim(b *Backend, k keys, a *driver.Acquisition) *lease {
	w.subscriber.mu.Lock()
	defer w.subscriber.mu.Unlock()
	g := w.granted
	if w.granted = nil; g == nil || w.micros == 0 || g.micros < w.micros {
		return nil // the server has said since that another has the lock
	}
	l := newLease(b, k, a, g.first)
	// The server's clock may have been set forward in between.
	age := min(time.Duration(g.micros-w.micros)*time.Microsecond, -w.sent.Left())
	term := grantedTTL(a)
	l.extend(w.sent.Add(age), term)
	if l.Deadline().Left() < term/4 {
		// Too little is left to begin with. Ask the server, which renews it if a still has it.
		return nil
	}
	l.wanted.Store(g.hold == holdBriefly)
	if g.hold == holdOnce {
		l.tokens = 1 // no hold follows on this lease; the rest is given back
	}
	return l
}

// place returns a's entry in the queue, and since when its process waits, or "" if that is now. The
// place is the process's: an acquisition keeps the place of one before it that gave up. A process
// that may not subscribe has none, and polls. w may be nil.
func (w *waiter) place(a *driver.Acquisition) (entry, since string) {
	if w == nil {
		return queueEntry(a), ""
	}
	w.subscriber.mu.Lock()
	defer w.subscriber.mu.Unlock()
	if w.processTopic.state == denied {
		return "", ""
	}
	if w.since > 0 {
		since = strconv.FormatInt(w.since, 10)
	}
	return queueEntry(a), since
}

// state returns how far the subscription of w's process has come.
func (w *waiter) state() topicState {
	w.subscriber.mu.Lock()
	defer w.subscriber.mu.Unlock()
	return w.processTopic.state
}

// held notes the server's answer to an attempt that was sent at sent: another has the lock.
// Redisson's clients say on the lock's channel that they release it.
func (w *waiter) held(sent driver.Instant, micros int64, redisson bool, channel string) {
	s := w.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	w.sent, w.micros = sent, micros
	if w.since == 0 || micros < w.since { // or the server's clock was set back
		w.since = micros
	}
	if redisson && s.waiters[w.key] == w {
		s.listenLocked(w, channel)
	}
}

// afterRedisson reports whether a client of Redisson held the lock while w waited.
func (w *waiter) afterRedisson() bool {
	w.subscriber.mu.Lock()
	defer w.subscriber.mu.Unlock()
	return w.redisson != nil
}

// listenLocked has w notified when a client of Redisson releases the lock.
func (s *subscriber) listenLocked(w *waiter, channel string) {
	if w.redisson == nil {
		w.redisson = s.joinLocked(channel, true)
		if w.redisson.state == confirmed { // a message since the attempt did not reach w
			w.notify()
		}
	}
	if s.router.cluster() != nil && w.sharded == nil {
		w.sharded = s.listenSharded(w, channel)
	}
}

// ended notes that an attempt has ended, and that w does not wait after it. If the attempt has taken
// the lock, the process loses its place in the queue; else its next goroutine keeps the place.
func (w *waiter) ended(taken bool) {
	w.subscriber.mu.Lock()
	defer w.subscriber.mu.Unlock()
	w.attempting = false
	if taken {
		w.since = 0
	}
	w.subscriber.dropUnusedLocked(w)
}

// dropUnusedLocked forgets w if nobody needs it.
func (s *subscriber) dropUnusedLocked(w *waiter) {
	if w.attempting || w.subscriptions > 0 || s.waiters[w.key] != w {
		return
	}
	delete(s.waiters, w.key)
	s.leaveLocked(w.processTopic)
	s.leaveLocked(w.redisson)
	if w.sharded != nil {
		w.sharded()
	}
}

// undone forgets what concerns a, which is being undone.
func (s *subscriber) undone(a *driver.Acquisition) {
	if s.active.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(a.ID)
	if w := s.waiters[waiterKeyOf(a)]; w != nil && w.id == a.ID {
		w.granted, w.attempting = nil, false
		s.dropUnusedLocked(w)
	}
}

// notifyLocked notifies the waiters that listen on t.
func (s *subscriber) notifyLocked(t *topic) {
	for _, w := range s.waiters {
		if t != nil && (w.processTopic == t || w.redisson == t) {
			w.notify()
		}
	}
}

func (w *waiter) notify() {
	select {
	case w.c <- struct{}{}:
	default: // it has an unread notice
	}
}

// handleLocked handles a message: of grant.lua, release.lua or acquire.lua on the channel of a
// process, or that the lock is free on Redisson's.
func (s *subscriber) handleLocked(m *redis.Message) {
	if !isProcess(m.Channel) {
		s.notifyLocked(s.topics[m.Channel])
		return
	}
	verb, rest, _ := strings.Cut(m.Payload, " ")
	id, rest, _ := strings.Cut(rest, " ")
	switch verb {
	case "wanted":
		if h := s.holders[id]; h != nil {
			s.wantedLocked(h)
		}
		s.wanted(id)
	case "turn":
		if w := s.waiters[waiterKey{engine.Process(id), rest, id}]; w != nil {
			w.notify()
		}
	case "look":
		if w := s.waiters[waiterKey{process: engine.Process(id), lock: rest}]; w != nil && w.id == id {
			if k, err := keysOf(rest); err == nil {
				s.listenLocked(w, k.channel)
			}
			w.notify()
		}
	case "granted":
		s.grantedLocked(id, rest)
	}
}

func (s *subscriber) grantedLocked(id, rest string) {
	words := strings.SplitN(rest, " ", 4)
	if len(words) < 4 {
		return
	}
	w := s.waiters[waiterKey{process: engine.Process(id), lock: words[3]}]
	first, err1 := strconv.ParseUint(words[0], 10, 63)
	micros, err2 := strconv.ParseInt(words[1], 10, 64)
	hold, err3 := strconv.Atoi(words[2])
	if w == nil || err1 != nil || err2 != nil || err3 != nil {
		return
	}
	w.since = 0 // a place in the queue ends with one grant, even if that is not used
	if w.id != id {
		return // the acquisition was given up, and is being undone
	}
	w.granted = &grant{first: first, micros: micros, hold: hold}
	w.notify()
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if _, err := keysOf(a.Key); err != nil {
		return nil, err
	}
	w := b.subscriber.waiter(a, true)
	one := &subscription{waiter: w}
	if err := b.subscriber.awaitConfirmed(ctx, w.processTopic); err != nil {
		one.Close()
		return nil, err
	}
	return one, nil
}

// subscription implements [driver.Subscription].
type subscription struct {
	*waiter
	closed bool // under the subscriber's mutex
}

// C implements [driver.Subscription].
func (n *subscription) C() <-chan struct{} { return n.c }

// Close implements [driver.Subscription].
func (n *subscription) Close() {
	n.subscriber.mu.Lock()
	defer n.subscriber.mu.Unlock()
	if !n.closed {
		n.closed = true
		n.subscriptions--
		n.subscriber.dropUnusedLocked(n.waiter)
	}
}
