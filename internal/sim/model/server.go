package model

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// Kind is an engine.
type Kind string

// The engines.
const (
	Etcd      Kind = "etcd"
	ZooKeeper Kind = "zookeeper"
	Consul    Kind = "consul"
	Row       Kind = "row"
)

// queues reports whether who waits has a place in line.
func (k Kind) queues() bool { return k == Etcd || k == ZooKeeper }

// Server is one server of an engine. Its methods may be called at any time.
type Server struct {
	kind  Kind
	lossy int            // of how many notifications one is lost; 0 if none is
	conns sync.WaitGroup // goroutines, one for each connection

	mu       sync.Mutex    // held only for moments, guards the rest
	ahead    time.Duration // of the database's clock
	paused   bool
	down     bool
	closed   bool
	waiting  []func() // requests that arrived during a pause
	revision uint64
	sessions []*session
	known    map[uint64]bool // ids of all sessions that ever were
	records  map[string]*record
	values   map[string]string    // on which clients agree
	undone   map[string]time.Time // tombstones of Row, until when by the database's clock
	links    []*link
	newest   map[*Client]uint64 // of ZooKeeper: the number of its newest link
	clients  []*Client
	timer    *time.Timer // for the next end of a session
}

// NewServer starts an empty server of kind.
func NewServer(kind Kind) *Server {
	s := &Server{kind: kind, known: map[uint64]bool{}, records: map[string]*record{}, values: map[string]string{},
		undone: map[string]time.Time{}, newest: map[*Client]uint64{}}
	if kind == Row {
		s.lossy = 16
	}
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	return s
}

// clock is the time by which rows expire.
func (s *Server) clock() time.Time { return time.Now().Add(s.ahead) }

// accept lets in a connection that arrives, unless the server is down.
func (s *Server) accept(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.closed {
		return false
	}
	s.links = append(s.links, l)
	s.newest[l.client] = max(s.newest[l.client], l.number)
	s.conns.Go(func() {
		<-l.far.Failed()
		s.drop(l)
		_ = l.far.Close()
	})
	return true
}

// drop forgets a connection that has ended, and its watches.
func (s *Server) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(one *link) bool { return one == l })
}

// handle executes a request that has arrived by l, or has it wait for the end of a pause.
func (s *Server) handle(l *link, run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.waiting = append(s.waiting, func() { s.execute(l, run) })
		return
	}
	s.settle()
	s.execute(l, run)
	s.arm()
}

// execute runs a request unless its connection is over: it was cut, the server has
// started since, or its ZooKeeper session has moved to a newer one.
func (s *Server) execute(l *link, run func()) {
	moved := s.kind == ZooKeeper && l.number < s.newest[l.client]
	if !moved && slices.Contains(s.links, l) {
		run()
	}
}

// tick ends what is over.
func (s *Server) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	s.arm()
}

// settle ends the sessions that are over, if the server runs.
func (s *Server) settle() {
	if s.paused || s.down {
		return
	}
	now := time.Now()
	for _, one := range slices.Clone(s.sessions) {
		if !now.Before(one.expires) {
			s.end(one)
			one.link.push(func() { one.client.lose(one.id, "") })
		}
	}
}

// arm sets the timer to the end of the session that ends first.
func (s *Server) arm() {
	s.timer.Stop()
	if s.paused || s.down || s.closed || len(s.sessions) == 0 {
		return
	}
	first := slices.MinFunc(s.sessions, func(a, b *session) int { return a.expires.Compare(b.expires) })
	s.timer.Reset(time.Until(first.expires))
}

// Pause stops the server as SIGSTOP does: it executes nothing, requests wait, and its
// clock goes on.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Resume ends Pause. What was over by then ends before the requests that waited.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.settle()
	for _, run := range s.waiting {
		run()
	}
	s.waiting = nil
	s.arm()
}

// Stop kills the server: all connections are cut, and requests are lost until Start.
func (s *Server) Stop() { s.cut(func() { s.down = true }) }

// cut cuts all connections, and has change happen with it.
func (s *Server) cut(change func()) {
	s.mu.Lock()
	change()
	s.timer.Stop()
	s.waiting = nil
	links := s.links
	s.links = nil
	s.mu.Unlock()
	for _, l := range links {
		l.flow.Reset()
		l.far.Fail(io.EOF)
	}
}

// Start starts the server again, with its data or empty. It gives every session its
// full time anew, as a leader does.
func (s *Server) Start(empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	if empty {
		s.sessions = nil
		clear(s.records)
		clear(s.values)
		clear(s.undone)
	}
	for _, one := range s.sessions {
		s.touch(one)
	}
	s.arm()
}

// Jump sets the database's clock forward by d, or back. The clocks of the other engines
// are monotonic: nobody sets them.
func (s *Server) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// Mute loses all replies on the present connections of the path with this number. They
// stay open, and requests on them are executed.
func (s *Server) Mute(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.flow.On(number) {
			l.flow.Mute()
		}
	}
}

// Free deletes what holds the lock on key, as an operator does, also during a pause.
func (s *Server) Free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || len(r.line) == 0 {
		return
	}
	n := r.line[0]
	s.remove(n)
	if n.session != nil {
		n.session.link.push(func() { n.session.client.lose(0, n.id) })
	}
}

// Snapshot returns each lock that is held: a hash that has the acquisition's id as its
// field. Its PTTL is how long the engine keeps it by itself, in ms, but no longer than
// the acquisition's ttl.
func (s *Server) Snapshot() (keys []history.KeyState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		if n := s.records[key].holder(s.clock()); n != nil {
			keys = append(keys, history.KeyState{
				Name: key, Type: "hash", PTTL: min(max(s.left(n), 0), n.ttl).Milliseconds(),
				Fields: map[string]string{n.id: "1"},
			})
		}
	}
	return keys
}

// left is how long the engine keeps n by itself.
func (s *Server) left(n *node) time.Duration {
	if n.session == nil {
		return n.expires.Sub(s.clock())
	}
	return time.Until(n.session.expires)
}

// Remains says what is left although all clients have closed and their leases are
// over, or "". A subscription that nobody closed counts.
func (s *Server) Remains() string {
	s.mu.Lock()
	s.settle()
	var left []string
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[key]
		for _, n := range r.line {
			if n.session != nil || n == r.holder(s.clock()) {
				left = append(left, fmt.Sprintf("%s stands at the lock %s, for %v more", n.id, key, s.left(n)))
			}
		}
	}
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	for _, c := range clients {
		left = append(left, c.remains()...)
	}
	return strings.Join(left, "; ")
}

// Close ends the server, its connections and goroutines.
func (s *Server) Close() {
	s.cut(func() { s.closed = true })
	s.conns.Wait()
}

// Connect returns what one process has of the server, over p. An attempt waits for its
// answer for timeout; 0 is 1 s.
func (s *Server) Connect(p *vnet.Path, timeout time.Duration) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newClient(s, p, cmp.Or(timeout, time.Second), uint64(len(s.clients))+1)
	s.clients = append(s.clients, c)
	return c
}

// floor is the lowest first token at a time of the database.
func floor(now time.Time) uint64 { return uint64(now.UnixMicro()) * driver.TokensPerMicrosecond }
