package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
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
	// pingAfter is how long the server may say nothing before it is pinged.
	pingAfter = 5 * time.Second
	// silenceLimit is how long a connection's channels may be without a message before it is
	// replaced. Its server may be the primary no more, or have left the Cluster, and answers pings.
	silenceLimit = 30 * time.Second
	// A connection that was lost is dialed again after firstRetry, which doubles up to
	// lastRetry.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Second
)

// subscriber is the connection on which a Backend hears of its locks: by one channel for
// each of its Lockers, and by a pattern for each lock whose release by a client of Redisson
// is waited for. It is made for the first waiter. When it is lost, everything is subscribed
// to anew, and every waiter is told then, as a message may have been missed. In a Cluster
// it leads to any master, because they pass on to each other what is published.
//
// Its mutex guards all fields below it, and those of waiters, topics and the session.
type subscriber struct {
	life         *engine.Life
	router       *router
	silenceLimit time.Duration // as the constant; a test has less
	active       atomic.Int64  // topics

	mu      sync.Mutex
	topics  map[string]*topic
	waiters map[waiterKey]*waiter
	holders map[string]*holder // by owner id: see holder.go
	wanted  func(id string)    // called when somebody waits for a lock that is no mutex
	session *session           // nil while there is none
	running bool               // the goroutine run was started

	wake chan struct{} // there is something for run to do
}

// session is one connection. The goroutine run writes to it, read reads.
type session struct {
	pubsub      *redis.PubSub
	limit       time.Duration // for an answer
	pending     []string      // the channels requested, and "" for a ping, until answered
	since       time.Time     // when the first of these was sent, or the one before it was answered
	lastReply   time.Time
	lastMessage time.Time       // when a message last came, or the connection was made
	alive       context.Context // ends when the connection is of no use any more
	end         context.CancelFunc
}

func newSubscriber(r *router) *subscriber {
	return &subscriber{
		life: r.life, router: r, topics: map[string]*topic{}, waiters: map[waiterKey]*waiter{},
		holders: map[string]*holder{}, wake: make(chan struct{}, 1), silenceLimit: silenceLimit,
	}
}

// joinLocked counts one user more of the topic of channel, and returns that.
func (s *subscriber) joinLocked(channel string, pattern bool) *topic {
	t := s.topics[channel]
	if t == nil {
		t = &topic{channel: channel, pattern: pattern, answered: make(chan struct{})}
		s.topics[channel] = t
		s.active.Store(int64(len(s.topics)))
		s.signal()
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

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// awaitConfirmed waits until the server confirms t or denies it.
func (s *subscriber) awaitConfirmed(ctx context.Context, t *topic) error {
	limit := time.NewTimer(confirmLimit)
	defer limit.Stop()
	select {
	case <-t.answered:
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

// testConnection has the connection tested: its server may have been replaced by another.
func (s *subscriber) testConnection() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.session; c != nil {
		c.lastReply = time.Time{}
		c.limit = min(c.limit, confirmLimit)
		s.signal()
	}
}

// run keeps a connection as long as there are topics.
func (s *subscriber) run(ctx context.Context) {
	retry := firstRetry
	for ctx.Err() == nil {
		if s.active.Load() == 0 {
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
		if connected := s.connect(ctx); connected {
			retry = firstRetry
		}
		engine.Pause(ctx, retry)
		retry = min(2*retry, lastRetry)
	}
}

// connect keeps one connection until it is lost, or nobody needs it. It reports
// whether the server has said anything on it.
func (s *subscriber) connect(life context.Context) (connected bool) {
	ctx, cancel := context.WithTimeout(life, confirmLimit)
	like, addr, err := s.router.clientFor(ctx, strconv.FormatUint(rand.Uint64(), 36)) // in a Cluster some master
	cancel()
	if err != nil {
		return false
	}
	o := s.router.optionsAt(like, addr)
	c := &session{limit: o.ReadTimeout, lastReply: time.Now(), lastMessage: time.Now()}
	c.alive, c.end = context.WithCancel(life)
	o.Dialer = dialOnce(c.alive, o.Dialer)
	client := redis.NewClient(&o)
	c.pubsub = client.Subscribe(context.Background())
	s.setSession(c)
	connected = s.write(c)
	s.setSession(nil)
	c.end()
	_ = c.pubsub.Close()
	_ = client.Close()
	return connected
}

// setSession makes c the present session, which then subscribes to all topics. A nil c ends the
// session before.
func (s *subscriber) setSession(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = c
	for _, t := range s.topics {
		t.state = unrequested
	}
	if c == nil {
		s.missedLocked()
	}
}

// write subscribes to what is wanted. It alone writes, because go-redis holds a mutex
// while it dials and greets. Reading begins after that.
func (s *subscriber) write(c *session) (connected bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for reading := false; ; {
		commands, next, over := s.commands(c)
		if over {
			return reading
		}
		for _, command := range commands {
			if command(c.pubsub) != nil {
				return reading
			}
			if !reading {
				reading = true
				s.life.Go(func(context.Context) { s.read(c) })
			}
		}
		timer.Reset(next)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-c.alive.Done():
			return reading
		}
	}
}

// commands returns what is to be sent now, and when to look again. over says that the
// connection is lost, or not needed any more.
func (s *subscriber) commands(c *session) (commands []func(*redis.PubSub) error, next time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for channel, t := range s.topics {
		switch {
		case t.state == unrequested:
			t.state = requested
			c.askLocked(channel, now)
			commands = append(commands, t.subscribe)
		case t.users == 0 && now.Sub(t.idle) >= linger && t.state != requested:
			delete(s.topics, channel)
			commands = append(commands, t.unsubscribe)
		}
	}
	s.active.Store(int64(len(s.topics)))
	if len(c.pending) == 0 && now.Sub(c.lastReply) >= pingAfter {
		c.askLocked("", now)
		commands = append(commands, func(p *redis.PubSub) error { return p.Ping(context.Background()) })
	}
	next = linger / 10
	if len(c.pending) > 0 {
		next = min(next, c.limit-now.Sub(c.since))
	}
	silent := now.Sub(c.lastMessage) >= s.silenceLimit
	return commands, max(next, time.Millisecond), c.alive.Err() != nil || len(s.topics) == 0 || next <= 0 || silent
}

// askLocked notes that channel is being subscribed to, or with "" a ping.
func (c *session) askLocked(channel string, now time.Time) {
	if len(c.pending) == 0 {
		c.since = now
	}
	c.pending = append(c.pending, channel)
}

// read hands on what the server says, until the connection is lost.
func (s *subscriber) read(c *session) {
	for {
		message, err := c.pubsub.ReceiveTimeout(context.Background(), 0)
		s.mu.Lock()
		if err != nil && !isAnswer(err) {
			s.mu.Unlock()
			c.end()
			return
		}
		c.lastReply = time.Now()
		switch m := message.(type) {
		case *redis.Message:
			c.lastMessage = c.lastReply
			s.handleLocked(m)
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				s.answeredLocked(c, confirmed, nil)
			}
		case *redis.Pong:
			s.answeredLocked(c, confirmed, nil)
		default:
			s.answeredLocked(c, denied, err)
		}
		s.mu.Unlock()
	}
}

// answeredLocked notes the answer to the first of what is pending.
func (s *subscriber) answeredLocked(c *session, state topicState, err error) {
	if s.session != c || len(c.pending) == 0 {
		return
	}
	t := s.topics[c.pending[0]]
	c.pending, c.since = c.pending[1:], time.Now()
	if t == nil || t.state != requested {
		return
	}
	if state == denied && t.pattern { // an ACL may allow the channel, and not the pattern
		t.pattern, t.state = false, unrequested
		s.signal()
		return
	}
	t.state, t.err = state, nil
	if state == denied {
		t.err = fmt.Errorf("the server refuses to subscribe to %s: %w", t.channel, err)
	}
	select {
	case <-t.answered: // restored after a gap
	default:
		close(t.answered)
		if isProcess(t.channel) {
			return // an acquire tries by itself once it has subscribed
		}
	}
	s.notifyLocked(t)
}

// dialOnce returns dial for the first call, whose connection closes when alive ends, also while
// go-redis waits for an answer on it. It fails all others: of a connection that is lost,
// go-redis would make another by itself.
func dialOnce(alive context.Context, dial dialer) dialer {
	var first sync.Once
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = errors.New("the connection was lost")
		first.Do(func() {
			if conn, err = dial(ctx, network, addr); err == nil {
				context.AfterFunc(alive, func() { _ = conn.Close() })
			}
		})
		return conn, err
	}
}

// topic is a channel.
type topic struct {
	channel  string
	pattern  bool // subscribe by a pattern that matches it alone: NUMSUB does not count patterns
	users    int
	idle     time.Time // since when it has none
	state    topicState
	answered chan struct{} // closed when the first subscription is confirmed or denied
	err      error         // why it was denied
}

// topicState is how far the subscription to a topic has come on the present connection.
type topicState int

const (
	unrequested topicState = iota
	requested
	confirmed
	denied
)

// patternOf returns a pattern that matches channel alone.
func patternOf(channel string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(channel)
}

func (t *topic) subscribe(p *redis.PubSub) error {
	if t.pattern {
		return p.PSubscribe(context.Background(), patternOf(t.channel))
	}
	return p.Subscribe(context.Background(), t.channel)
}

func (t *topic) unsubscribe(p *redis.PubSub) error {
	if t.pattern {
		return p.PUnsubscribe(context.Background(), patternOf(t.channel))
	}
	return p.Unsubscribe(context.Background(), t.channel)
}
