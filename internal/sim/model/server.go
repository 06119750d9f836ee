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

// queues reports whether a waiter has a place in the engine's queue.
func (k Kind) queues() bool { return k == Etcd || k == ZooKeeper }

// Server is one server of an engine. Its methods may be called at any time.
type Server struct {
	kind  Kind
	lossy int            // one of so many notifications is lost; 0 means none
	conns sync.WaitGroup // goroutines, one for each connection

	mu       sync.Mutex    // held only for moments, guards the rest
	ahead    time.Duration // the error of the database's clock
	paused   bool
	down     bool
	closed   bool
	waiting  []func() // requests that arrived during a pause
	revision uint64
	sessions []*session
	known    map[uint64]bool // IDs of all sessions so far
	records  map[string]*record
	values   map[string]string    // values of [driver.Agreement]
	undone   map[string]time.Time // ends of the tombstones of Row, by the database's clock
	links    []*link
	newest   map[*Client]uint64 // for ZooKeeper: the number of the client's newest link
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

// clock returns the database's time, by which rows expire.
func (s *Server) clock() time.Time { return time.Now().Add(s.ahead) }

// accept accepts a connection that arrives, unless the server is down.
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

// drop removes a connection that has ended, with its watches.
func (s *Server) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(one *link) bool { return one == l })
}

// handle executes a request that has arrived on l, or lets it wait for the end of a pause.
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

// execute runs a request unless its connection is over: it was cut, the server was
// restarted since, or its ZooKeeper session has moved to a newer connection.
func (s *Server) execute(l *link, run func()) {
	moved := s.kind == ZooKeeper && l.number < s.newest[l.client]
	if !moved && slices.Contains(s.links, l) {
		run()
	}
}

// tick ends the sessions that are over.
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

// arm sets the timer for the session that ends first.
func (s *Server) arm() {
	s.timer.Stop()
	if s.paused || s.down || s.closed || len(s.sessions) == 0 {
		return
	}
	first := slices.MinFunc(s.sessions, func(a, b *session) int { return a.expires.Compare(b.expires) })
	s.timer.Reset(time.Until(first.expires))
}

// Pause stops the server as SIGSTOP does: it executes nothing, requests wait, and its
// clock continues.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Resume ends Pause. Sessions that are over end before the waiting requests are executed.
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

// cut cuts all connections and calls change at that moment.
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
// full time again, as a new leader does.
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

// Jump sets the database's clock forward by d, or back if d is negative. The clocks of the other
// engines are monotonic and are not set.
func (s *Server) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// Mute drops all replies on the current connections of the path with this number. The connections
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

// Free deletes the holder of the lock on key, as an operator does, even during a pause.
func (s *Server) Free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || len(r.queue) == 0 {
		return
	}
	n := r.queue[0]
	s.remove(n)
	if n.session != nil {
		n.session.link.push(func() { n.session.client.lose(0, n.id) })
	}
}

// Snapshot returns each lock that is held, as a hash with the acquisition's ID as its
// field. Its PTTL is how long the engine keeps the lock without a renewal, in ms, but at most
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

// left returns how long the engine keeps n without a renewal.
func (s *Server) left(n *node) time.Duration {
	if n.session == nil {
		return n.expires.Sub(s.clock())
	}
	return time.Until(n.session.expires)
}

// Remains describes what is left after all clients have closed and their leases are
// over, or returns "". A subscription that was not closed counts.
func (s *Server) Remains() string {
	s.mu.Lock()
	s.settle()
	var left []string
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[key]
		for _, n := range r.queue {
			if n.session != nil || n == r.holder(s.clock()) {
				left = append(left, fmt.Sprintf("%s is left at the lock %s, for %v more", n.id, key, s.left(n)))
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

// Connect returns the client of one process, which reaches the server over p. A request waits for
// its answer for timeout; 0 means 1 s.
func (s *Server) Connect(p *vnet.Path, timeout time.Duration) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newClient(s, p, cmp.Or(timeout, time.Second), uint64(len(s.clients))+1)
	s.clients = append(s.clients, c)
	return c
}

// floor returns the lowest first token at now, the database's time.
func floor(now time.Time) uint64 { return uint64(now.UnixMicro()) * driver.TokensPerMicrosecond }
