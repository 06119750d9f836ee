package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

const (
	// confirmLimit bounds the wait for the server to confirm a subscription. A
	// waiter that has none polls.
	confirmLimit = time.Second
	// linger is how long a subscription outlives its last waiter: a key that is
	// fought for is not subscribed to at every turn.
	linger = time.Second
	// quiet is how long the connection may say nothing before it is pinged. A
	// dead one costs waiters no more than a poll, so there is no hurry.
	quiet = 15 * time.Second
)

// listener hears of releases, for all keys and Lockers of a Backend, on one
// connection, which is made for the first waiter. When that connection is
// lost, go-redis makes it anew and subscribes again; every waiter is told
// then, as a notice may have been missed.
type listener struct {
	client redis.UniversalClient

	mu     sync.Mutex
	pubsub *redis.PubSub // nil until somebody waits
	topics map[string]*topic
	closed bool
	work   chan struct{} // there are topics to subscribe to, or to leave
	stop   chan struct{}
	done   sync.WaitGroup
}

// topic is the channel of one lock.
type topic struct {
	waiters   map[*subscription]struct{}
	idle      time.Time // since when it has none
	asked     bool      // the server was asked for it
	confirmed chan struct{}
	directed  bool        // the next '0' belongs to a notice for one process
	missed    *time.Timer // when the turn of the one that was called last is over
}

// subscription implements [lock.Subscription].
type subscription struct {
	listener *listener
	channel  string
	process  string
	c        chan struct{}
}

func newListener(client redis.UniversalClient) *listener {
	return &listener{client: client, topics: map[string]*topic{}, work: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Subscribe implements [lock.Notifier].
func (b *Backend) Subscribe(ctx context.Context, a *lock.Acquisition) (lock.Subscription, error) {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil, err
	}
	return b.listener.subscribe(ctx, k.channel, process(a.ID))
}

func (l *listener) subscribe(ctx context.Context, channel, process string) (lock.Subscription, error) {
	s := &subscription{listener: l, channel: channel, process: process, c: make(chan struct{}, 1)}
	confirmed, err := l.join(s)
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	select {
	case <-confirmed:
		return s, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-limit.C:
		err = fmt.Errorf("no subscription to %s within %v", channel, confirmLimit)
	}
	s.Close()
	return nil, err
}

// join adds s to its topic and returns what is closed once the server has
// confirmed that.
func (l *listener) join(s *subscription) (confirmed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.pubsub == nil {
		l.pubsub = l.client.Subscribe(context.Background())
		l.done.Go(l.tend)
		l.done.Go(l.listen)
	}
	t := l.topics[s.channel]
	if t == nil {
		t = &topic{waiters: map[*subscription]struct{}{}, confirmed: make(chan struct{})}
		l.topics[s.channel] = t
		l.wake()
	}
	t.waiters[s] = struct{}{}
	return t.confirmed, nil
}

func (l *listener) wake() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// C implements [lock.Subscription].
func (s *subscription) C() <-chan struct{} { return s.c }

// Close implements [lock.Subscription].
func (s *subscription) Close() {
	l := s.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[s.channel]
	if t == nil {
		return
	}
	delete(t.waiters, s)
	if len(t.waiters) == 0 {
		t.idle = time.Now()
		l.wake()
	}
}

// tend subscribes to new topics and leaves those that idle. It alone talks to
// the server, so that no waiter waits for a slow one.
func (l *listener) tend() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		fresh, stale, again := l.changes()
		// An error needs no answer here: go-redis repeats a subscription that
		// failed when it has a connection again, and until then waiters poll.
		if len(fresh) > 0 {
			_ = l.pubsub.Subscribe(context.Background(), fresh...)
		}
		if len(stale) > 0 {
			_ = l.pubsub.Unsubscribe(context.Background(), stale...)
		}
		timer.Reset(again)
		select {
		case <-l.work:
		case <-timer.C:
		case <-l.stop:
			return
		}
	}
}

// changes returns the channels to subscribe to and to leave, and when to look again.
func (l *listener) changes() (fresh, stale []string, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again = time.Hour
	for channel, t := range l.topics {
		if !t.asked {
			t.asked = true
			fresh = append(fresh, channel)
		}
		if len(t.waiters) > 0 {
			continue
		}
		if left := linger - time.Since(t.idle); left > 0 {
			again = min(again, left)
			continue
		}
		delete(l.topics, channel)
		t.stop()
		stale = append(stale, channel)
	}
	return fresh, stale, again
}

// listen hands on what the server says.
func (l *listener) listen() {
	for message := range l.pubsub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(quiet)) {
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				l.confirm(m.Channel)
			}
		case *redis.Message:
			l.notice(m.Channel, m.Payload)
		}
	}
}

// confirm notes that the subscription to channel stands; again, after a gap.
func (l *listener) confirm(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return
	}
	t.directed = false
	select {
	case <-t.confirmed:
		t.notify(func(*subscription) bool { return true })
	default:
		close(t.confirmed)
	}
}

// notice reads a message on a lock's channel: the number of the process that
// may go on, or '0' for all. Behind a number, one '0' is for Redisson's clients.
func (l *listener) notice(channel, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	switch {
	case t == nil:
	case payload != "0":
		t.directed = true
		t.notify(func(s *subscription) bool { return s.process == payload })
		l.expect(channel, t)
	case t.directed:
		t.directed = false
	default:
		t.notify(func(*subscription) bool { return true })
	}
}

// expect tells t's waiters when the process that was just called has had its
// time: should it be dead, the next may go on then. The listener is locked.
func (l *listener) expect(channel string, t *topic) {
	const over = turnLimit + time.Millisecond // engines count in milliseconds
	if t.missed != nil {
		t.missed.Reset(over)
		return
	}
	t.missed = time.AfterFunc(over, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.topics[channel] == t {
			t.notify(func(*subscription) bool { return true })
		}
	})
}

func (t *topic) stop() {
	if t.missed != nil {
		t.missed.Stop()
	}
}

// notify tells the waiters that match. The listener is locked.
func (t *topic) notify(match func(*subscription) bool) {
	for s := range t.waiters {
		if match(s) {
			select {
			case s.c <- struct{}{}:
			default: // it has one coming
			}
		}
	}
}

// close ends the connection and the goroutines.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	for _, t := range l.topics {
		t.stop()
	}
	pubsub := l.pubsub
	l.mu.Unlock()
	close(l.stop)
	if pubsub != nil {
		pubsub.Close()
	}
	l.done.Wait()
}
