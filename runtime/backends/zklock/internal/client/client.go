// Package client keeps one session with a ZooKeeper ensemble. It speaks the server's
// protocol by itself, and takes types and errors from github.com/go-zookeeper/zk,
// because zklock needs of a client what that library keeps to itself, or does
// otherwise:
//
//   - The timeout that a server granted, and when that was asked for. A lease's
//     deadline is reckoned with both.
//   - Requests in an order that the caller chooses, without a goroutine for each,
//     and the Stat of a node with the answer to its creation.
//   - A session that has ended stays ended. The library begins another one.
//   - Watches end with their connection, and whoever has one is told so: what happens
//     until the next connection would be told in no order.
//   - An end at once, and servers tried in turn without a second of sleep between.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

var (
	// ErrNotSent says that a request never left.
	ErrNotSent = errors.New("not sent")
	// ErrNoAnswer says that the connection ended first: the request may have been
	// done, or may yet be.
	ErrNoAnswer = errors.New("no answer")
	// ErrExpired says that the ensemble has ended the session.
	ErrExpired = errors.New("the ensemble has ended the session")
	// ErrAuth says that a server has refused an Identity.
	ErrAuth = errors.New("zookeeper refuses the credentials")
)

// Config says which session a Client keeps, and what it calls. The functions are called by
// one goroutine, in the order of events, and must not block.
type Config struct {
	Servers    []string      // host:port
	Timeout    time.Duration // of the session, as it is asked for
	Identities []Identity    // shown on each connection
	Dial       zk.Dialer
	Logger     zk.Logger // is told why a connection ended; may be nil
	// Granted is called when a server has confirmed the session, with the timeout that it
	// granted. sent is from before the server was dialed.
	Granted func(timeout time.Duration, sent driver.Instant)
	// Tried is called with nil when requests can be sent, and with an error when all servers
	// were tried in vain. They are tried again.
	Tried func(err error)
}

// Identity is one of a client's credentials.
type Identity struct {
	Scheme string
	Auth   []byte
}

// Client keeps one session over one connection at a time. Make it with New. Run
// does the work; Send may be called from any number of goroutines. The methods are
// here and in link.go.
type Client struct {
	config Config
	// answerTimeout is how long a server may take over an answer, and over the handshake of a
	// session that exists, before the next server is tried.
	answerTimeout time.Duration

	// Only Run's goroutine uses these.
	servers      []string
	lastZxid     int64 // the last transaction that was seen
	tried        int   // servers, since one granted the session
	refused      bool  // one of these refused the session
	wasConnected bool  // there was a connection that could send requests

	mu        sync.Mutex // guards the rest
	id        int64      // of the session; 0 until a server has granted it
	password  []byte
	conn      net.Conn            // nil while no requests can be sent
	up        chan struct{}       // closed while they can
	lastError error               // why the last connection ended, or could not be had
	xid       int32               // the number of the last request
	out       []byte              // what is to be written
	wake      chan struct{}       // out holds something
	pending   []call              // what was sent and not answered, in order
	watches   map[string][]*Watch // by path
}

// call is a request under way.
type call struct {
	xid  int32
	r    Request
	done func(Answer)
}

// New returns a Client that has done nothing yet.
func New(config Config) *Client {
	c := &Client{
		config:        config,
		answerTimeout: max(config.Timeout/3, 250*time.Millisecond),
		servers:       slices.Clone(config.Servers),
		password:      make([]byte, 16),
		watches:       map[string][]*Watch{},
		up:            make(chan struct{}),
		wake:          make(chan struct{}, 1),
	}
	rand.Shuffle(len(c.servers), func(i, j int) { c.servers[i], c.servers[j] = c.servers[j], c.servers[i] })
	return c
}

const (
	// dialTimeout bounds the dialing of one server.
	dialTimeout = time.Second
	// firstHandshakes is how long all servers together may take over the first handshake.
	firstHandshakes = 5 * time.Second
	// closeTimeout is how long a server may take over the end of a session.
	closeTimeout = 100 * time.Millisecond
	// minRounds is how often all servers are tried before Tried is called if one of them
	// refuses the session, as servers do that elect a leader. If none does, once is enough.
	minRounds = 5
)

// Run keeps the session until the ensemble or ctx ends it, and returns why. If ctx
// has ended, and a connection stands, the session is ended at the server too.
func (c *Client) Run(ctx context.Context) error {
	for next := 0; ; next++ {
		if rounds := c.tried / len(c.servers); rounds > 0 {
			if c.tried%len(c.servers) == 0 && (!c.refused || rounds >= minRounds) {
				c.config.Tried(c.LastError())
			}
			engine.Pause(ctx, min(10*time.Millisecond<<min(rounds, 10), 500*time.Millisecond))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.tried++
		err := c.connect(ctx, c.servers[next%len(c.servers)])
		if ctx.Err() == nil && (errors.Is(err, ErrExpired) || !c.wasConnected && errors.Is(err, ErrAuth)) {
			return err
		}
		c.mu.Lock()
		c.lastError = err
		c.mu.Unlock()
		if c.config.Logger != nil {
			c.config.Logger.Printf("zookeeper: %v", err)
		}
	}
}

// Up returns a channel that is closed while there is a connection, and is another
// one for the next.
func (c *Client) Up() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// LastError returns why the last connection ended, or could not be had: nil while there is one.
func (c *Client) LastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastError
}

// Session returns the session's id and password.
func (c *Client) Session() (id int64, password []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id, c.password
}

// Send sends r. Requests are sent, dealt with by the server and answered in one
// order. The answer is given to done once, by the goroutine that all answers come
// from, or at once if there is no connection; done must not block.
func (c *Client) Send(r Request, done func(Answer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		done(Answer{Err: fmt.Errorf("%w, there is no connection to ZooKeeper: %w", ErrNotSent, c.lastError)})
		return
	}
	if c.xid++; c.xid < 0 { // negative numbers have other meanings
		c.xid = 1
	}
	c.out = append(c.out, requestFrame(c.xid, r.op, r.body)...)
	if r.watch != nil {
		r.watch.state.Store(Standing)
		c.watches[r.watch.Path] = append(c.watches[r.watch.Path], r.watch)
	}
	if c.pending = append(c.pending, call{c.xid, r, done}); len(c.pending) == 1 {
		c.setReadDeadlineLocked()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// connect has the session confirmed by the server at address, and deals with
// requests until the connection or the session ends. It returns why it ended.
func (c *Client) connect(ctx context.Context, address string) error {
	sent := driver.Now()
	conn, err := c.config.Dial("tcp", address, dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		c.closeSession(conn)
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	handshakeTimeout := firstHandshakes / time.Duration(len(c.servers))
	if id, _ := c.Session(); id != 0 { // it may time out meanwhile
		handshakeTimeout = c.answerTimeout
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	timeout, err := c.shakeHands(conn, r)
	if err == ErrExpired {
		return err
	}
	if err != nil {
		c.refused = c.refused || !errors.Is(err, os.ErrDeadlineExceeded)
		return fmt.Errorf("%s gave no session, as a server does that has no quorum, speaks TLS or is no ZooKeeper: %w", address, err)
	}
	c.config.Granted(timeout, sent)
	for _, one := range c.config.Identities {
		if err := c.identify(conn, r, one); err != nil {
			return err
		}
	}
	_ = conn.SetDeadline(time.Time{})
	c.tried, c.refused = 0, false
	return c.serve(ctx, conn, r)
}
