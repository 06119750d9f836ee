// Package faultproxy is a TCP proxy between a client and its server, a Redis or a
// ZooKeeper. It loses, delays and holds back requests and replies, as a network may. It
// knows where a request begins and ends. So a test can choose the command that is lost or
// delayed, and can count commands, also in a pipeline.
//
// All switches may be changed while connections are in use.
package faultproxy

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// Direction is the direction of data. The two may be combined with |.
type Direction uint8

const (
	Requests Direction = 1 << iota // from the client to the server
	Replies                        // from the server to the client
)

// Proxy is between clients and one server.
type Proxy struct {
	t        testing.TB
	format   format
	upstream string
	addr     string
	tasks    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	listener net.Listener
	links    map[*link]bool
	delays   map[Direction]time.Duration
	hole     Direction
	swallows []*swallow
	helds    []*Held
	counts   map[string]int
}

// New starts a proxy in front of upstream, "host:port". It ends with the test.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	return start(t, resp, upstream)
}

// NewZooKeeper is like [New], in front of a ZooKeeper. It counts and matches requests
// by the names of [Op].
func NewZooKeeper(t testing.TB, upstream string) *Proxy {
	t.Helper()
	return start(t, zookeeper, upstream)
}

func start(t testing.TB, f format, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{
		t:        t,
		format:   f,
		upstream: upstream,
		addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.Port(t))),
		links:    map[*link]bool{},
		delays:   map[Direction]time.Duration{},
		counts:   map[string]int{},
	}
	p.Accept()
	t.Cleanup(func() {
		p.Refuse()
		p.Reset()
		p.tasks.Wait()
	})
	return p
}

// Addr returns the address for clients to dial.
func (p *Proxy) Addr() string { return p.addr }

// Swallow passes on the next n requests that match, and loses their replies. Each lost reply
// closes its connection, after the replies before it were passed on. The channel is closed when
// n replies were lost.
func (p *Proxy) Swallow(n int, match Match) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &swallow{match: match, left: n, lost: n, done: make(chan struct{})}
	p.swallows = append(p.swallows, s)
	return s.done
}

// Late holds back the next request that matches, and all requests after it on its connection,
// until Deliver. The client may close its connection in the meantime.
func (p *Proxy) Late(match Match) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &Held{
		match:    match,
		arrived:  make(chan struct{}),
		deliver:  make(chan struct{}),
		answered: make(chan struct{}),
		failed:   make(chan struct{}),
	}
	p.helds = append(p.helds, h)
	return h
}

// Delay makes all data in the direction dir d late from now on.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []Direction{Requests, Replies} {
		if dir&one != 0 {
			p.delays[one] = d
		}
	}
}

// Hole drops all data in the direction dir without an error: connections stay open, and new
// ones are accepted. A connection that lost bytes can't be used any more. Its client should
// have timed out, as over a real network.
func (p *Proxy) Hole(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole |= dir
}

// Heal ends all delays and holes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.delays)
	p.hole = 0
}

// Reset cuts all connections with a TCP reset. New ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse makes new connections fail as if there were no server. Existing connections stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept ends Refuse.
func (p *Proxy) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	listener, err := listen(p.addr)
	if err != nil {
		p.t.Errorf("faultproxy: %v", err)
		return
	}
	p.listener = listener
	p.tasks.Go(func() { p.serve(listener) })
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed by Refuse
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.join(listener, client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

// join makes a link of two connections, unless the proxy began to refuse connections in the
// meantime.
func (p *Proxy) join(listener net.Listener, client, server *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLink(p, client, server)
	if p.listener != listener {
		l.reset()
		return
	}
	p.links[l] = true
	p.tasks.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// Count returns how many requests with this name have come since the start or the last
// ResetCounts.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[strings.ToUpper(name)]
}

// Counts returns the number of requests by command, in capitals.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// ResetCounts sets all counts to 0.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

// Links returns how many connections there are.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}
