package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// glance is how long a link reads before it looks whether its caller is
	// still there, and asks to be told when it goes. A deadline that is moved
	// once in a while costs less than asking for every call.
	glance = 20 * time.Millisecond
	// rested is how long a link may lie idle before it is looked at for whether
	// the server has closed it.
	rested = 10 * time.Millisecond
)

// link is one connection, in use by one goroutine at a time. go-redis dials it
// and greets the server (TLS, user, database); from then on it is spoken to
// directly.
type link struct {
	options *redis.Options

	mu     sync.Mutex // guards what close needs
	conn   net.Conn   // nil if there is none
	closed bool

	client   *redis.Client // that conn belongs to
	wary     bool          // look whether the server may evict locks
	examined bool          // it was asked about itself
	unfit    error         // it may evict locks
	single   bool          // it is one server that has all keys, as far as it says
	lane     *atomic.Bool  // the same, for who does not know the connection
	mute     bool          // the last connection was lost for the question
	probed   bool          // it lets us give locks an expiry
	replies  replies
	out      []byte
	armed    time.Time // when conn's deadline was set
	used     time.Time

	ctx   context.Context // of the use, for Read
	until time.Time       // when it is given up
	stop  func() bool     // waiting to be told of the end of ctx, or nil
}

func newLink(client *redis.Client, wary bool, single *atomic.Bool) *link {
	o := *client.Options()
	o.PoolSize = 1
	o.MaxRetries = -1
	s := &link{options: &o, wary: wary, lane: single}
	s.replies.from = s
	return s
}

// begin readies the link for a use that lasts until ctx ends, or as long as
// the server may take.
func (s *link) begin(ctx context.Context, within time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	s.end() // the use before: behind its stop, this one would be given up after a glance
	s.ctx, s.out = ctx, s.out[:0]
	now := time.Now()
	limit := s.options.ReadTimeout + within
	s.until = now.Add(limit)
	if s.conn != nil {
		s.arm(now)
		if isCut(s.conn) || now.Sub(s.used) > rested && isGone(s.conn) {
			s.drop()
		}
	}
	if s.conn == nil {
		if err := s.dial(ctx); err != nil {
			return err
		}
		now = time.Now()
		s.until = now.Add(limit)
		s.arm(now)
	}
	s.used = now
	if end, ok := ctx.Deadline(); ok && end.Sub(now) < glance { // the first glance would last longer
		_ = s.conn.SetReadDeadline(end)
		s.armed = time.Time{}
	}
	return nil
}

// dial has go-redis make the connection and greet the server. The PING is what
// makes it do so: see greeting.
func (s *link) dial(ctx context.Context) error {
	o := *s.options
	var mu sync.Mutex
	var conn *greeting // the one that was dialed, perhaps after ctx ended
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		conn = &greeting{Conn: c}
		return conn, nil
	}
	greet := o.OnConnect
	o.OnConnect = func(ctx context.Context, c *redis.Conn) (err error) {
		if greet != nil {
			if err = greet(ctx, c); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		conn.end()
		return nil
	}
	client := redis.NewClient(&o)
	// Without its deadline: go-redis would be out of time a moment before ctx is.
	undated, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { // go-redis hears of a deadline, but not of a cancellation
		cancel()
		mu.Lock()
		defer mu.Unlock()
		if conn != nil {
			_ = conn.Close()
		}
	})
	err := client.Conn().Ping(undated).Err()
	mu.Lock()
	dialed := conn
	mu.Unlock()
	if !stop() {
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		err = redis.ErrClosed
	}
	if err != nil {
		_ = client.Close()
		switch {
		case isAnswer(err) || errors.Is(err, errNotSent):
			return err
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
		return fmt.Errorf("%w: %w: %w", errNotSent, errNoGreeting, err)
	}
	s.client, s.conn, s.examined, s.unfit, s.single, s.probed = client, dialed.Conn, false, nil, false, false
	direct(s.conn)
	s.replies.reset()
	s.armed = time.Time{}
	return nil
}

// drop gives the connection up. The next use dials anew.
func (s *link) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
		_ = s.client.Close()
		s.conn, s.client = nil, nil
	}
}

// arm moves the connection's deadline, if it was not just moved.
func (s *link) arm(now time.Time) {
	if now.Sub(s.armed) > glance/2 {
		s.armed = now
		_ = s.conn.SetReadDeadline(now.Add(glance))
		_ = s.conn.SetWriteDeadline(s.until)
	}
}

// flush sends what was appended to out. An error says that some of it may have
// been sent.
func (s *link) flush() error {
	if s.conn == nil { // it was lost in this use
		return errLost
	}
	n, err := s.conn.Write(s.out)
	if n == 0 && errors.Is(err, net.ErrClosed) { // by us
		s.drop()
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	if err != nil {
		return s.broken(err)
	}
	return nil
}

// reply reads the next reply.
func (s *link) reply() (reply, error) {
	r, err := s.replies.next()
	if err != nil {
		return r, s.broken(err)
	}
	return r, nil
}

// broken gives up the connection after err.
func (s *link) broken(err error) error {
	s.drop()
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// Read reads from the connection for as long as the use lasts.
func (s *link) Read(p []byte) (int, error) {
	for {
		n, err := s.conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if s.stop == nil {
			conn := s.conn
			_ = conn.SetReadDeadline(s.until)
			s.stop = context.AfterFunc(s.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
			continue
		}
		if ended := s.ctx.Err(); ended != nil {
			return 0, ended
		}
		return 0, fmt.Errorf("the server was silent for %v: %w", s.options.ReadTimeout, err)
	}
}

// end ends a use that began.
func (s *link) end() {
	if s.stop == nil {
		return
	}
	if !s.stop() { // and who knows when it moves the deadline
		s.drop()
	}
	s.stop, s.armed = nil, time.Time{}
}

// close ends the link, in use or not.
func (s *link) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.conn == nil {
		return nil
	}
	_ = s.conn.Close()
	return s.client.Close()
}

// one runs c. It returns when ctx ends, and gives up the connection then.
func (s *link) one(ctx context.Context, c *call) error {
	err := s.begin(ctx, c.copies.within)
	if err != nil {
		return err
	}
	defer s.end()
	if err = s.fit(c); err != nil {
		s.lookAnew()
		return err
	}
	if err = s.exchange(c); err == nil && isUnknownScript(c.reply.err()) {
		c.whole = true
		err = s.exchange(c)
	}
	if err != nil {
		return err
	}
	if c.copies.want > 0 {
		err = s.copied([]*call{c})
	}
	if err == nil {
		err = c.reply.err()
	}
	return err
}

// exchange sends c and reads the reply.
func (s *link) exchange(c *call) error {
	c.sent = driver.Now()
	s.out = c.appendTo(s.out[:0])
	if err := s.flush(); err != nil {
		return err
	}
	return s.read(c)
}

// read reads c's reply.
func (s *link) read(c *call) (err error) {
	if c.asking {
		if _, err = s.reply(); err != nil {
			return err
		}
	}
	c.reply, err = s.reply()
	s.probed = s.probed || c.probe && c.reply.kind == ':' && c.reply.number > 0
	return err
}

// fit returns an error if c may not be sent here, and readies it otherwise. A
// server is asked what it might do to locks before the first is taken on a
// connection; what it has is freed whatever it answers, and without being asked.
func (s *link) fit(c *call) error {
	if s.conn == nil { // lost with the question that an earlier call asked
		return errLost
	}
	if !c.script.takes {
		return nil
	}
	c.probe = !s.probed
	if s.examined {
		return s.unfit
	}
	return s.examine()
}
