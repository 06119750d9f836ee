package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

const (
	// laneWidth is how many connections a lane sends on.
	laneWidth = 2
	// laneBatch is how many calls one pipeline carries at most.
	laneBatch = 128
)

// lane sends the calls of concurrent goroutines to one server. A call that
// finds a connection free is sent at once, by its own goroutine; those that
// come while all are in use go together in the next pipeline. So a lone caller
// waits for nobody, and many callers share round trips.
type lane struct {
	client *redis.Client // for what must not wait behind calls: renewals

	mu      sync.Mutex
	waiting []*call
	free    []*link
	links   []*link // free or in use

	checked atomic.Bool // that the server may be trusted with locks
}

// call is one script on its way.
type call struct {
	script *script
	keys   []string
	args   []any
	asking bool // the server was named by an ASK
	copies copies

	state atomic.Int32 // waiting, sent or left
	sent  lock.Instant // from before it was sent
	reply any
	err   error
	done  chan struct{}
}

const (
	waiting int32 = iota
	sent
	left
)

var (
	// errNotSent says that a call did not reach the server and never will.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a call may have run, or may yet run.
	errNoAnswer = errors.New("no answer")
)

func newLane(client *redis.Client) *lane {
	l := &lane{client: client}
	for range laneWidth {
		l.links = append(l.links, newLink(client))
	}
	l.free = append(l.free, l.links...)
	return l
}

// do runs c and returns its reply. It returns as soon as ctx ends: with
// errNotSent if c was not sent and will not be, else with errNoAnswer.
func (l *lane) do(ctx context.Context, c *call) (any, error) {
	l.mu.Lock()
	if len(l.free) > 0 {
		s := l.take()
		l.mu.Unlock()
		reply, err := s.one(ctx, c)
		l.put(s)
		return reply, err
	}
	c.done = make(chan struct{})
	l.waiting = append(l.waiting, c)
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.reply, c.err
	case <-ctx.Done():
		if c.state.CompareAndSwap(waiting, left) {
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// take takes a free link, the one used last: its connection is warm. The lane
// is locked.
func (l *lane) take() *link {
	s := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	return s
}

// put frees s, or has it serve those who wait by now.
func (l *lane) put(s *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.free = append(l.free, s)
		return
	}
	go l.serve(s)
}

// serve sends pipelines on s until no call waits.
func (l *lane) serve(s *link) {
	for {
		l.mu.Lock()
		n := min(len(l.waiting), laneBatch)
		if n == 0 {
			l.waiting = nil
			l.free = append(l.free, s)
			l.mu.Unlock()
			return
		}
		batch := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.mu.Unlock()
		s.many(batch)
	}
}

// close ends all connections, those in use as well.
func (l *lane) close() error {
	var err error
	for _, s := range l.links {
		err = errors.Join(err, s.client.Close())
	}
	return err
}

// link is one connection, in use by one goroutine at a time. It is a client
// with a pool of one, dialed by us, because go-redis, which passes a deadline
// on to its connection, knows no way to pass on a cancellation.
type link struct {
	client *redis.Client

	mu    sync.Mutex
	conn  net.Conn
	dials uint64
	turn  uint64 // counts uses, so that a late interruption strikes no other
}

func newLink(client *redis.Client) *link {
	s := &link{}
	o := *client.Options()
	o.PoolSize = 1
	o.MaxRetries = -1
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		s.mu.Lock()
		s.conn = conn
		s.dials++
		s.mu.Unlock()
		return conn, err
	}
	s.client = redis.NewClient(&o)
	return s
}

// dialed returns a number that changes with the connection.
func (s *link) dialed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// one runs c, and cuts the connection if ctx ends before the answer is there.
func (s *link) one(ctx context.Context, c *call) (any, error) {
	if ctx.Done() == nil {
		return s.process(ctx, c)
	}
	s.mu.Lock()
	turn := s.turn
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == turn && s.conn != nil {
			s.conn.Close()
		}
	})
	reply, err := s.process(ctx, c)
	if !stop() {
		s.mu.Lock()
		s.turn++
		s.mu.Unlock()
		if err != nil && !isAnswer(err) {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
	return reply, err
}

func (s *link) process(ctx context.Context, c *call) (any, error) {
	c.sent = lock.Now()
	err := s.send(ctx, c, false)
	if err != nil && isUnknownScript(err) {
		c.sent = lock.Now()
		err = s.send(ctx, c, true)
	}
	if err == nil && c.copies.want > 0 {
		err = s.copied(ctx, []*call{c})
	}
	return c.reply, classify(err)
}

func (s *link) send(ctx context.Context, c *call, whole bool) error {
	cmd := c.command(ctx, whole)
	var err error
	if c.asking {
		pipe := s.client.Pipeline()
		_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
		_ = pipe.Process(ctx, cmd)
		_, err = pipe.Exec(ctx)
		if cmd.Err() != nil {
			err = cmd.Err()
		}
	} else {
		err = s.client.Process(ctx, cmd)
	}
	c.reply = cmd.Val()
	return err
}

// many runs calls in one pipeline; those whose script the server does not know
// go once more, with the script. Their callers may leave meanwhile.
func (s *link) many(calls []*call) {
	live := calls[:0]
	for _, c := range calls {
		if c.state.CompareAndSwap(waiting, sent) {
			live = append(live, c)
		}
	}
	again := s.pipeline(live, false)
	s.pipeline(again, true)
}

// pipeline runs calls and ends each, but for those that it returns.
func (s *link) pipeline(calls []*call, whole bool) (unknown []*call) {
	if len(calls) == 0 {
		return nil
	}
	now := lock.Now()
	ctx := context.Background()
	cmds := make([]redis.Cmder, len(calls))
	pipe := s.client.Pipeline()
	for i, c := range calls {
		c.sent = now
		if c.asking {
			_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
		}
		cmds[i] = c.command(ctx, whole)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, failed := pipe.Exec(ctx)
	done := make([]*call, 0, len(calls))
	for i, c := range calls {
		cmd := cmds[i].(*redis.Cmd)
		err := cmd.Err()
		if err == nil && failed != nil && cmd.Val() == nil {
			err = failed
		}
		if err != nil && !whole && isUnknownScript(err) {
			unknown = append(unknown, c)
			continue
		}
		c.reply, c.err = cmd.Val(), classify(err)
		done = append(done, c)
	}
	if err := s.copied(ctx, done); err != nil {
		for _, c := range done {
			c.err = err
		}
	}
	for _, c := range done {
		close(c.done)
	}
	return unknown
}

// command returns c as go-redis sends it: by the script's hash, or whole.
func (c *call) command(ctx context.Context, whole bool) *redis.Cmd {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	if whole {
		args = append(args, "eval", c.script.source, len(c.keys))
	} else {
		args = append(args, "evalsha", c.script.hash, len(c.keys))
	}
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	if len(c.keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

func isUnknownScript(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// classify wraps err by what it says of the call's fate: errNotSent,
// errNoAnswer, or (an error that the server answered) neither.
func classify(err error) error {
	var dial *net.OpError
	switch {
	case err == nil, isAnswer(err), errors.Is(err, errNotSent), errors.Is(err, errNoAnswer):
		return err
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// isAnswer reports whether err is what the server said, and not about the way there.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
