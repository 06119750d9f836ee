package faultproxy

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// Stream is like [Proxy], for unknown protocols such as HTTP/2. It delays bytes and cuts
// connections, but does not know where a request begins or ends.
type Stream struct {
	t        testing.TB
	upstream string
	addr     string
	tasks    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	listener net.Listener
	conns    map[*net.TCPConn]bool
	delays   map[Direction]time.Duration
	hole     Direction
	healed   chan struct{} // closed by Heal
}

// NewStream starts a proxy in front of upstream, "host:port". It ends with the test.
func NewStream(t testing.TB, upstream string) *Stream {
	t.Helper()
	s := &Stream{
		t:        t,
		upstream: upstream,
		addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.Port(t))),
		conns:    map[*net.TCPConn]bool{},
		delays:   map[Direction]time.Duration{},
		healed:   make(chan struct{}),
	}
	s.Accept()
	t.Cleanup(func() {
		s.Refuse()
		s.Heal()
		s.Reset()
		s.tasks.Wait()
	})
	return s
}

// Addr returns the address for clients to dial.
func (s *Stream) Addr() string { return s.addr }

// Hole holds back all data in the direction dir until Heal. Connections stay open, and new ones
// are accepted. As over TCP nothing is lost, but arrives late.
func (s *Stream) Hole(dir Direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hole |= dir
}

// Delay makes all data in the direction dir d late from now on.
func (s *Stream) Delay(dir Direction, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range []Direction{Requests, Replies} {
		if dir&one != 0 {
			s.delays[one] = d
		}
	}
}

// Heal ends all delays and holes.
func (s *Stream) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.delays)
	s.hole = 0
	close(s.healed)
	s.healed = make(chan struct{})
}

// Reset cuts all connections with a TCP reset. New ones are accepted.
func (s *Stream) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}

// Refuse makes new connections fail as if there were no server. Existing connections stay.
func (s *Stream) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
}

// Accept ends Refuse.
func (s *Stream) Accept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return
	}
	listener, err := listen(s.addr)
	if err != nil {
		s.t.Errorf("faultproxy: %v", err)
		return
	}
	s.listener = listener
	s.tasks.Go(func() { s.serve(listener) })
}

func (s *Stream) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed by Refuse
		}
		server, err := net.Dial("tcp", s.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		s.join(client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

func (s *Stream) join(client, server *net.TCPConn) {
	s.mu.Lock()
	s.conns[client], s.conns[server] = true, true
	s.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { s.pass(client, server, Requests) })
	both.Go(func() { s.pass(server, client, Replies) })
	s.tasks.Go(func() {
		both.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, client)
		delete(s.conns, server)
	})
}

// pass moves bytes in one direction until either side closes.
func (s *Stream) pass(from, to *net.TCPConn, dir Direction) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	chunks := make(chan chunk, queueSize)
	var writer sync.WaitGroup
	writer.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			s.throughHole(dir)
			_, _ = to.Write(c.bytes)
		}
		_ = to.Close()
	})
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			s.mu.Lock()
			due := time.Now().Add(s.delays[dir])
			s.mu.Unlock()
			chunks <- chunk{buffer[:n], due}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	_ = from.Close()
	writer.Wait()
}

// throughHole waits until there is no hole in the direction dir.
func (s *Stream) throughHole(dir Direction) {
	for {
		s.mu.Lock()
		hole, healed := s.hole&dir != 0, s.healed
		s.mu.Unlock()
		if !hole {
			return
		}
		<-healed
	}
}
