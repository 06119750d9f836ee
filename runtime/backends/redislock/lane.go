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
	// laneWidth is how many pipelines may be under way to one server at once.
	laneWidth = 2
	// laneBatch is how many calls one pipeline carries at most.
	laneBatch = 128
)

// lane sends the calls of concurrent goroutines to one server. A call that
// finds a pipeline free is sent at once; those that come while all are under
// way go together in the next. So a lone caller waits for nobody, and many
// callers share round trips.
type lane struct {
	client *redis.Client

	mu       sync.Mutex
	waiting  []*call
	underway int

	checked atomic.Bool // that the server may be trusted with locks
}

// call is one script on its way.
type call struct {
	script *script
	keys   []string
	args   []any

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

// do runs c and returns its reply. It returns as soon as ctx ends: with
// errNotSent if c was not sent and will not be, else with errNoAnswer.
func (l *lane) do(ctx context.Context, c *call) (any, error) {
	c.done = make(chan struct{})
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if l.underway < laneWidth {
		l.underway++
		go l.run()
	}
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

// run sends pipelines until no call waits.
func (l *lane) run() {
	for {
		l.mu.Lock()
		n := min(len(l.waiting), laneBatch)
		if n == 0 {
			l.underway--
			l.mu.Unlock()
			return
		}
		batch := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.mu.Unlock()
		l.send(batch)
	}
}

// send runs calls in one pipeline; those whose script the server does not know
// go once more, with the script. Their callers may have left meanwhile, so no
// call is touched after it is done.
func (l *lane) send(calls []*call) {
	now := lock.Now()
	live := calls[:0]
	for _, c := range calls {
		if c.state.CompareAndSwap(waiting, sent) {
			c.sent = now
			live = append(live, c)
		}
	}
	again := l.pipeline(live, false)
	l.pipeline(again, true)
}

// pipeline runs calls and ends each, but for those that it returns.
func (l *lane) pipeline(calls []*call, whole bool) (unknown []*call) {
	if len(calls) == 0 {
		return nil
	}
	cmds := make([]*redis.Cmd, len(calls))
	pipe := l.client.Pipeline()
	for i, c := range calls {
		name, body := "evalsha", c.script.hash
		if whole {
			name, body = "eval", c.script.source
		}
		args := make([]any, 0, 3+len(c.keys)+len(c.args))
		args = append(args, name, body, len(c.keys))
		for _, k := range c.keys {
			args = append(args, k)
		}
		cmds[i] = pipe.Do(context.Background(), append(args, c.args...)...)
	}
	_, failed := pipe.Exec(context.Background())
	for i, c := range calls {
		reply, err := cmds[i].Result()
		if err == nil && failed != nil && reply == nil {
			err = failed
		}
		if err != nil && !whole && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			unknown = append(unknown, c)
			continue
		}
		c.reply, c.err = reply, classify(err)
		close(c.done)
	}
	return unknown
}

var (
	// errNotSent says that a call did not reach the server and never will.
	errNotSent = errors.New("not sent")
	// errNoAnswer says that a call may have run, or may yet run.
	errNoAnswer = errors.New("no answer")
)

// classify wraps err by what it says of the call's fate: errNotSent,
// errNoAnswer, or (an error that the server answered) neither.
func classify(err error) error {
	var dial *net.OpError
	switch {
	case err == nil || isAnswer(err):
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
	return errors.As(err, &answer) && !errors.Is(err, redis.ErrClosed)
}
