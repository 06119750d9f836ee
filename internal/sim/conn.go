package sim

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// conn is the server's side of one connection. It passes one request at a time to miniredis,
// so a fault can strike a single request, and conn knows the answer to it.
type conn struct {
	*vnet.End
	redis  *Redis
	flow   *vnet.Flow
	number int
	in     *bufio.Reader
	idle   chan struct{} // has a value after the last request was answered
	gone   chan struct{} // closed by the server
	begun  bool

	mu         sync.Mutex // guards the rest
	rest       []byte     // the rest of a request that miniredis has begun to read
	again      []byte     // a request to execute a second time
	drop       int        // number of answers that are not sent
	subscribed bool
}

// action is the effect of a rule on a request that it matches.
type action int

const (
	loseReply   action = iota // execute the request; send no more replies on the connection
	cutBehind                 // execute the request, then cut the connection
	cutBefore                 // cut the connection without executing the request
	arriveLate                // execute the request, and those after it on the connection, much later
	arriveTwice               // execute the request twice
)

// rule is a fault that strikes requests.
type rule struct {
	number int // of the process
	match  func(request []byte) bool
	left   int // number of requests that it still applies to
	action action
	delay  time.Duration
}

// strike adds a rule and returns a function that removes it.
func (r *Redis) strike(one *rule) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, one)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.left = 0
	}
}

// struck returns the rule for request on the path of f, or nil.
func (r *Redis) struck(f *vnet.Flow, request []byte) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.rules {
		if one.left > 0 && f.On(one.number) && one.match(request) {
			one.left--
			return one
		}
	}
	return nil
}

// Read implements [net.Conn] for miniredis. It returns one request, after the previous one
// was answered.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		if len(c.rest) > 0 {
			n := copy(p, c.rest)
			c.rest = c.rest[n:]
			c.mu.Unlock()
			return n, nil
		}
		c.mu.Unlock()
		if err := c.next(); err != nil {
			c.forget()
			return 0, err
		}
	}
}

// next reads a request and applies the rule that matches it.
func (c *conn) next() error {
	if c.begun {
		select {
		case <-c.idle:
		case <-c.Failed(): // miniredis writes nothing after that
		case <-c.gone:
		}
	}
	c.begun = true
	c.mu.Lock()
	if len(c.again) > 0 {
		c.rest, c.again = c.again, nil
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	request, err := readRequest(c.in)
	if err != nil {
		return err
	}
	one, run := c.redis.struck(c.flow, request), c.redis.started()
	if one != nil && one.action == arriveLate {
		time.Sleep(one.delay)
	}
	c.redis.await()
	if c.redis.started() != run { // the server that received it was stopped
		return io.EOF
	}
	c.redis.tick()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = request
	c.subscribed = c.subscribed || bytes.Contains(request, []byte("subscribe\r\n"))
	if one == nil {
		return nil
	}
	switch one.action {
	case loseReply:
		c.flow.Mute()
	case cutBehind:
		c.flow.Mute()
		time.AfterFunc(one.delay, c.flow.Reset)
	case cutBefore:
		c.rest = nil
		c.flow.Reset()
		return io.EOF
	case arriveTwice:
		c.again = bytes.Clone(request)
		c.drop = 1
	}
	return nil
}

// Write implements [net.Conn] for miniredis.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	dropped := c.drop > 0 && len(c.again) == 0
	if dropped {
		c.drop--
	}
	c.mu.Unlock()
	select {
	case c.idle <- struct{}{}:
	default:
	}
	if dropped {
		return len(p), nil
	}
	return c.End.Write(p)
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	err := c.End.Close()
	if err == nil {
		close(c.gone)
	}
	return err
}

// forget removes c from the server's connections.
func (c *conn) forget() {
	c.redis.mu.Lock()
	defer c.redis.mu.Unlock()
	delete(c.redis.conns, c)
}

func (c *conn) isSubscribed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed
}

// readRequest returns the bytes of the next request, an array of bulk strings.
func readRequest(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	request := line
	n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	if err != nil {
		return nil, err
	}
	for range n {
		if line, err = in.ReadBytes('\n'); err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
		if err != nil {
			return nil, err
		}
		value := make([]byte, size+2)
		if _, err := io.ReadFull(in, value); err != nil {
			return nil, err
		}
		request = append(append(request, line...), value...)
	}
	return request, nil
}
