package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// confirmLimit bounds the wait for the server to confirm a subscription. A
	// waiter that has none polls.
	confirmLimit = time.Second
	// linger is how long a subscription outlives its last waiter: a key that is
	// fought for is not subscribed to at every turn.
	linger = time.Second
)

// listener hears of releases, for all keys and Lockers of a Backend, on one
// connection, in a Cluster on one to each master with locks that are waited for.
// A connection is made for the first waiter. When it is lost, or a slot goes to
// another master, what was listened for there is subscribed to anew, and every
// waiter is told then, as a notice may have been missed.
//
// In a Cluster it listens on a lock's plain channel and, from Redis 7.0 on, on
// the sharded one of the same name. Redisson announces a release on either,
// depending on its version; ours are announced on both.
type listener struct {
	// route returns a client of the server of channel's slot and, in a Cluster,
	// that server's address.
	route     func(ctx context.Context, channel string) (like *redis.Client, addr string, err error)
	at        func(like *redis.Client, addr string) redis.Options // of a client of ours for that address
	reload    func()                                              // what is known of the servers; does not wait
	clustered bool

	awaited atomic.Int64 // topics
	grants  string       // the channel on which it hears of them

	mu      sync.Mutex
	offered uint64                   // the number of the last offer
	offers  map[uint64]*subscription // that have not been taken up
	topics  map[string]*topic
	ears    map[string]*ear // by address
	away    map[string]*retry
	doubts  time.Time // until then the servers may have changed places
	closed  bool
	tended  bool          // tend runs
	work    chan struct{} // there is something for it to do
	alive   context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// source is one of the two kinds of channel.
type source int

const (
	plain source = iota
	sharded
)

// standing is what has become of a subscription at the server.
type standing int

const (
	unasked standing = iota
	asked
	stands
	denied
)

// topic is the channel of one lock.
type topic struct {
	channel   string
	waiters   map[*subscription]struct{}
	idle      time.Time // since when it has none
	confirmed chan struct{}
	failed    chan struct{} // closed instead, when there is an err
	err       error

	ear    *ear // nil while it has none
	states [sharded + 1]standing
	due    time.Time // when to look for an ear for it
	mapped string    // the server that the map of slots names
	told   string    // the one that a server named since
	hops   int       // from server to server, without being taken

	directed int // so many '0's belong to a notice for one process
	copied   string
	copiedAt time.Time
	missed   *time.Timer // when the turn of the one that was called last is over
}

// subscription implements [driver.Subscription].
type subscription struct {
	listener *listener
	topic    *topic
	process  string
	c        chan struct{}

	// Under the listener's mutex.
	offer offer
	grant *lease
}

func newListener(r *router) *listener {
	l := &listener{
		route: r.home, at: r.optionsAt, reload: r.refresh, clustered: r.cluster() != nil,
		topics: map[string]*topic{}, ears: map[string]*ear{}, away: map[string]*retry{}, work: make(chan struct{}, 1),
		grants: newGrantChannel(), offers: map[uint64]*subscription{},
	}
	l.alive, l.stop = context.WithCancel(context.Background())
	return l
}

// Subscribe implements [driver.Notifier].
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil, err
	}
	return b.listener.subscribe(ctx, k.channel, process(a.ID))
}

func (l *listener) subscribe(ctx context.Context, channel, process string) (driver.Subscription, error) {
	s := &subscription{listener: l, process: process, c: make(chan struct{}, 1)}
	if err := l.join(s, channel); err != nil {
		return nil, err
	}
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	var err error
	select {
	case <-s.topic.confirmed:
		return s, nil
	case <-s.topic.failed:
		err = s.topic.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-limit.C:
		if l.contented(s.topic) {
			return s, nil
		}
		err = fmt.Errorf("no subscription to %s within %v", channel, confirmLimit)
	}
	s.Close()
	return nil, err
}

// join adds s to the topic of channel.
func (l *listener) join(s *subscription, channel string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if !l.tended {
		l.tended = true
		l.done.Go(l.tend)
	}
	t := l.topics[channel]
	if t == nil {
		t = &topic{
			channel: channel, waiters: map[*subscription]struct{}{},
			confirmed: make(chan struct{}), failed: make(chan struct{}),
		}
		l.topics[channel] = t
		l.awaited.Store(int64(len(l.topics)))
		l.wake()
	}
	s.topic = t
	t.waiters[s] = struct{}{}
	return nil
}

// contented reports whether t's waiters can do with what stands of it: one kind
// of channel of two. From then on they are told when more does.
func (l *listener) contented(t *topic) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.states[plain] != stands && t.states[sharded] != stands {
		return false
	}
	if !t.isConfirmed() {
		close(t.confirmed)
	}
	return true
}

// C implements [driver.Subscription].
func (s *subscription) C() <-chan struct{} { return s.c }

// Close implements [driver.Subscription].
func (s *subscription) Close() {
	l, t := s.listener, s.topic
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(t.waiters, s)
	delete(l.offers, s.offer.number)
	if len(t.waiters) == 0 && l.topics[t.channel] == t {
		t.idle = time.Now()
		l.wake()
	}
}

// notice reads a message on a lock's channel: the number of the process that
// may go on, or '0' for all; for each number, one '0' is for Redisson's clients. A
// number below 0 is that of a process which has the lock already, with a brief
// lease. The listener is locked.
func (l *listener) notice(channel, payload string) {
	t := l.topics[channel]
	switch {
	case channel == l.grants:
		l.granted(payload)
	case t == nil:
	case strings.HasPrefix(payload, "-"):
		l.expect(t)
	case payload != "0":
		t.directed++
		if !t.isCopy(payload) {
			t.notify(func(s *subscription) bool { return s.process == payload })
			l.expect(t)
		}
	case t.directed > 0:
		t.directed--
	default:
		t.notify(everyone)
	}
}

// isCopy reports whether a number was heard just now on the other kind of
// channel. go-redis does not tell them apart. A number that is mistaken for a
// copy costs its process a poll.
func (t *topic) isCopy(number string) bool {
	if t.states[plain] != stands || t.states[sharded] != stands {
		return false
	}
	now := time.Now()
	if t.copied == number && now.Sub(t.copiedAt) < 100*time.Millisecond {
		t.copied = ""
		return true
	}
	t.copied, t.copiedAt = number, now
	return false
}

// expect tells t's waiters when the process that was just called has had its
// time: should it be dead, the next may go on then. The listener is locked.
func (l *listener) expect(t *topic) {
	const over = turnLimit + time.Millisecond // engines count in milliseconds
	if t.missed != nil {
		t.missed.Reset(over)
		return
	}
	t.missed = time.AfterFunc(over, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.topics[t.channel] == t {
			t.notify(everyone)
		}
	})
}

func (t *topic) isConfirmed() bool {
	select {
	case <-t.confirmed:
		return true
	default:
		return false
	}
}

func (t *topic) stop() {
	if t.missed != nil {
		t.missed.Stop()
	}
}

func everyone(*subscription) bool { return true }

// notify tells the waiters that match. The listener is locked.
func (t *topic) notify(match func(*subscription) bool) {
	for s := range t.waiters {
		if match(s) {
			s.notify()
		}
	}
}

func (s *subscription) notify() {
	select {
	case s.c <- struct{}{}:
	default: // it has one coming
	}
}

// close ends the connections and the goroutines.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	for _, t := range l.topics {
		t.stop()
	}
	for _, e := range l.ears {
		l.drop(e)
	}
	l.mu.Unlock()
	l.stop()
	l.done.Wait()
}
