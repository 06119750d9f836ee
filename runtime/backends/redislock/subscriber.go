package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// confirmLimit bounds the wait for the server to confirm a subscription. A
	// waiter that has none polls.
	confirmLimit = time.Second
	// linger is how long a subscription outlives its last waiter.
	linger = 3 * time.Second
	// quiet is how long a connection may say nothing before it is pinged, and then until it
	// counts as lost.
	quiet = 2 * time.Second
	// A connection that was lost is dialed again after firstRetry, which doubles up to
	// lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Second
)

// subscriber is the connection on which a Backend hears of its locks: by one channel for
// each of its Lockers, and by a pattern for each lock whose release by a client of Redisson
// is waited for. It is made for the first waiter. When it is lost, everything is subscribed
// to anew, and every waiter is told then, as a message may have been missed. In a Cluster
// it leads to some master, because they pass on to each other what is published.
//
// Its mutex guards all fields below it, and those of waiters, topics and the session.
type subscriber struct {
	life   *engine.Life
	router *router
	active atomic.Int64 // topics

	mu      sync.Mutex
	topics  map[string]*topic
	waiters map[waiterKey]*waiter
	holders map[string]*holder // by owner id: see holder.go
	wanted  func(id string)    // is told that somebody waits for a lock that is no mutex
	session *session           // nil while there is none
	running bool               // the goroutine run is

	wake chan struct{} // there is something for run to do
}

// session is one connection. The goroutine run writes to it, read reads.
type session struct {
	pubsub *redis.PubSub
	alive  context.Context // ends when the connection is of no use any more
	end    context.CancelFunc
	stood  bool     // the server was reached; run's own
	asked  []*topic // subscribed to and not answered yet, in order
}

func newSubscriber(r *router) *subscriber {
	return &subscriber{
		life: r.life, router: r, topics: map[string]*topic{}, waiters: map[waiterKey]*waiter{},
		holders: map[string]*holder{}, wake: make(chan struct{}, 1),
	}
}

// joinLocked counts one user more of the topic of channel, and returns that.
func (s *subscriber) joinLocked(channel string, pattern bool) *topic {
	t := s.topics[channel]
	if t == nil {
		t = &topic{channel: channel, pattern: pattern, settled: make(chan struct{})}
		s.topics[channel] = t
		s.active.Store(int64(len(s.topics)))
		s.rouse()
	}
	t.users++
	if !s.running {
		s.running = s.life.Go(s.run)
	}
	return t
}

// leaveLocked undoes joinLocked, if t is not nil.
func (s *subscriber) leaveLocked(t *topic) {
	if t == nil {
		return
	}
	if t.users--; t.users == 0 {
		t.idle = time.Now()
	}
}

func (s *subscriber) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// confirm waits until t stands or is refused.
func (s *subscriber) confirm(ctx context.Context, t *topic) error {
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	select {
	case <-t.settled:
		s.mu.Lock()
		defer s.mu.Unlock()
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Context().Done():
		return driver.ErrClosed
	case <-limit.C:
		return fmt.Errorf("no subscription to %s within %v", t.channel, confirmLimit)
	}
}

// run keeps a connection as long as there are topics.
func (s *subscriber) run(ctx context.Context) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		if s.active.Load() == 0 {
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
		if s.connect(ctx) {
			retry = firstRetry
		} else {
			s.router.refresh() // the map of a Cluster may name a node that is gone
		}
		engine.Pause(ctx, retry)
	}
}

// noDial is for calls that only write or read: in place of a connection that is lost go-redis
// would make another, and not tell that messages may have been missed.
var noDial = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// connect keeps one connection until it is lost, or nobody needs it. It reports
// whether the server was reached.
func (s *subscriber) connect(life context.Context) (stood bool) {
	c := &session{pubsub: s.router.own.Subscribe(life)}
	c.alive, c.end = context.WithCancel(life)
	s.begin(c)
	engine.Every(c.alive, linger/10, s.wake, func(context.Context) { s.update(c) })
	s.begin(nil)
	_ = c.pubsub.Close()
	return c.stood
}

// begin makes c the present session, which is to subscribe to all topics. With nil, the one
// before is over.
func (s *subscriber) begin(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = c
	for _, t := range s.topics {
		t.state = unasked
	}
	if c == nil {
		s.missedLocked()
	}
}

// update subscribes to what is new and leaves what nobody needs any more. Only run calls
// it, without the mutex while it writes, because go-redis dials for the first of these. Then
// reading begins.
func (s *subscriber) update(c *session) {
	enter, leave := s.changes(c)
	for _, t := range enter {
		if c.stood {
			_ = t.enter(noDial, c.pubsub) // reading tells if it failed
		} else if c.stood = t.enter(c.alive, c.pubsub) == nil; !c.stood || !s.life.Go(func(context.Context) { s.read(c) }) {
			c.end()
			return
		}
	}
	for _, t := range leave {
		_ = t.leave(noDial, c.pubsub)
	}
}

// changes returns the topics to subscribe to and those to leave. Without topics the session ends.
func (s *subscriber) changes(c *session) (enter, leave []*topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, t := range s.topics {
		switch {
		case t.state == unasked:
			t.state = asked
			c.asked = append(c.asked, t)
			enter = append(enter, t)
		case t.users == 0 && time.Since(t.idle) >= linger:
			delete(s.topics, channel)
			leave = append(leave, t)
		}
	}
	s.active.Store(int64(len(s.topics)))
	if len(s.topics) == 0 {
		c.end()
	}
	return enter, leave
}

// read hands on what the server says, until the connection is lost.
func (s *subscriber) read(c *session) {
	defer c.end()
	for pinged := false; ; {
		message, err := c.pubsub.ReceiveTimeout(noDial, quiet)
		switch {
		case err == nil || isAnswer(err):
			pinged = false
		case pinged || !errors.Is(err, os.ErrDeadlineExceeded) || c.pubsub.Ping(noDial) != nil:
			return
		default:
			pinged = true
			continue
		}
		s.mu.Lock()
		switch m := message.(type) {
		case *redis.Message:
			s.heardLocked(m)
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				s.answeredLocked(c, standing, nil)
			}
		case *redis.Pong:
		default:
			s.answeredLocked(c, denied, err)
		}
		s.mu.Unlock()
	}
}

// answeredLocked notes the answer to the first of what was asked.
func (s *subscriber) answeredLocked(c *session, state subscription, err error) {
	if s.session != c || len(c.asked) == 0 {
		return
	}
	t := c.asked[0]
	c.asked = c.asked[1:]
	if state == denied && t.pattern { // ACLs take the pattern literally; the channel may do
		t.pattern, t.state = false, unasked
		s.rouse()
		return
	}
	t.state, t.err = state, nil
	if state == denied {
		t.err = fmt.Errorf("the server refuses to subscribe to %s: %w", t.channel, err)
	}
	select {
	case <-t.settled: // restored after a gap
	default:
		close(t.settled)
		if isProcess(t.channel) {
			return // who waits for that tries by itself
		}
	}
	s.notifyLocked(t)
}
