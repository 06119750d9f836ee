package peers

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// action is the effect of a fault on a request.
type action int

const (
	loseReply   action = iota // execute the request; send no more replies on the connection
	cutBehind                 // execute the request, and cut the connection soon after
	cutBefore                 // cut the connection without executing the request
	arriveLate                // execute the request, and those after it on the connection, much later
	arriveTwice               // execute the request twice
)

// rule is a fault that affects requests of one process.
type rule struct {
	match  func(Request) bool
	left   int // number of requests that it still applies to
	action action
	delay  time.Duration
}

// link connects one process to the server. It counts requests and applies faults to
// them, at the process's end of the connection.
type link struct {
	process int
	server  *server
	path    *vnet.Path
	plain   func(ctx context.Context) (net.Conn, error)
	kind    func(words []string, script string) Request
	trace   func(process int, words []string) // called for each request, if not nil

	mu       sync.Mutex // guards the rest
	rules    []*rule
	conns    []*conn
	requests int
	heard    time.Time // when the last reply arrived
}

// newLink returns the link of a process over path.
func newLink(process int, s *server, path *vnet.Path, p Peer) *link {
	client := s.Client(path, 0) // only its dialer is used
	dial := client.Options().Dialer
	_ = client.Close()
	return &link{
		process: process, server: s, path: path, kind: p.RequestOf,
		plain: func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", address) },
	}
}

// dial opens a connection.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	near, err := l.plain(ctx)
	if err != nil {
		return nil, err
	}
	end, ok := near.(*vnet.End)
	if !ok {
		return nil, errors.New("peers: the connection is no vnet.End")
	}
	c := &conn{End: end, link: l, run: l.server.runs()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

// strike adds a rule. It returns a function that ends the rule and returns how many requests it had left.
func (l *link) strike(one *rule) (end func() int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, one)
	return func() (left int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		left, one.left = one.left, 0
		return left
	}
}

// struck counts a request and returns the rule that applies to it, or nil.
func (l *link) struck(words []string) *rule {
	kind := l.kind(words, l.server.note(l.process, words))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if l.trace != nil {
		l.trace(l.process, words)
	}
	for _, one := range l.rules {
		if one.left > 0 && one.match(kind) {
			one.left--
			return one
		}
	}
	return nil
}

// sent returns how many requests the process has sent.
func (l *link) sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// silentSince reports whether no reply has arrived since t.
func (l *link) silentSince(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.Before(t)
}

// silences returns the times in which connections of the process had lost replies and the process had not
// given them up yet.
func (l *link) silences() (some []span) {
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		if !c.silent.IsZero() {
			some = append(some, span{c.silent, c.closed})
		}
		c.mu.Unlock()
	}
	return some
}

// killSubscriptions cuts the connections with subscriptions.
func (l *link) killSubscriptions() {
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		if c.isSubscribed() {
			c.reset()
		}
	}
}

// conn is a process's end of a connection.
type conn struct {
	*vnet.End
	link *link
	run  int // the run of the server

	mu         sync.Mutex // guards the rest
	part       []byte     // the beginning of an incomplete request
	late       []request  // requests that wait for the end of a delay; not nil during a delay
	silent     time.Time  // since when replies are lost
	closed     time.Time  // when the process closed the connection
	subscribed bool
}

// request is one request, as bytes and as words.
type request struct {
	bytes []byte
	words []string
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.End.Read(p)
		c.mu.Lock()
		silent := !c.silent.IsZero()
		c.mu.Unlock()
		if n == 0 || err != nil {
			return n, err
		}
		if !silent {
			c.link.mu.Lock()
			c.link.heard = time.Now()
			c.link.mu.Unlock()
			return n, nil
		}
	}
}

// Write implements [net.Conn]. It sends each complete request as the current faults
// allow.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.broken(); err != nil {
		return 0, err
	}
	c.part = append(c.part, p...)
	var out []byte
	for {
		words, bytes, rest := split(c.part)
		if words == nil {
			break
		}
		c.part = rest
		c.subscribed = c.subscribed || isCommand(words, "subscribe") || isCommand(words, "ssubscribe")
		out = append(out, c.send(request{append([]byte(nil), bytes...), words})...)
	}
	if len(out) > 0 && c.broken() == nil {
		if _, err := c.End.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// broken returns the error of a write, or nil. The conn's mutex must be held.
func (c *conn) broken() error {
	select {
	case <-c.Failed():
		return &net.OpError{Op: "write", Net: "vnet", Err: syscall.EPIPE}
	default:
	}
	if !c.closed.IsZero() {
		return net.ErrClosed
	}
	return nil
}

// send returns the part of a request to send at once. The conn's mutex must be held.
func (c *conn) send(one request) []byte {
	struck := c.link.struck(one.words)
	if c.broken() != nil {
		return nil
	}
	if c.late != nil {
		c.late = append(c.late, one)
		return nil
	}
	if struck == nil {
		return one.bytes
	}
	switch struck.action {
	case loseReply:
		c.silence()
	case cutBehind:
		c.silence()
		time.AfterFunc(struck.delay, c.reset)
	case cutBefore:
		c.reset()
		return nil
	case arriveLate:
		c.late = []request{one}
		time.AfterFunc(struck.delay, c.flush)
		return nil
	case arriveTwice:
		go c.link.server.deliver(one.words, c.run)
	}
	return one.bytes
}

// silence loses all replies from now on. The conn's mutex must be held.
func (c *conn) silence() {
	if c.silent.IsZero() {
		c.silent = time.Now()
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed.IsZero() {
		c.closed = time.Now()
	}
	c.mu.Unlock()
	return c.End.Close()
}

// flush sends the delayed requests. If the connection is over, they are executed anyway, as if they had
// been in the server's buffers.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.late
	c.late = nil
	for i, one := range late {
		if _, err := c.End.Write(one.bytes); err != nil {
			go func() {
				for _, one := range late[i:] {
					c.link.server.deliver(one.words, c.run)
				}
			}()
			return
		}
	}
}

// reset ends the connection at the process's side. The server is notified when the
// client closes its end.
func (c *conn) reset() { c.Fail(syscall.ECONNRESET) }

func (c *conn) isSubscribed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed
}
