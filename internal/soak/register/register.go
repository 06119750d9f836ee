// Package register is the resource that the locks of a soak guard. It has one value for
// each key, in the parent process, which no fault strikes. It accepts a write only
// if no earlier write had a higher fencing token.
package register

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// Server is the register of one episode.
type Server struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	conns    map[net.Conn]bool
	highest  map[string]uint64
	attempts []history.Attempt
}

// Listen serves a register at the unix socket path.
func Listen(path string) (*Server, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, conns: map[net.Conn]bool{}, highest: map[string]uint64{}}
	s.tasks.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.tasks.Go(func() { s.serve(conn) })
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var a history.Attempt
		if in.Decode(&a) != nil || out.Encode(s.write(a)) != nil {
			return
		}
	}
}

func (s *Server) write(a history.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.At = history.Now()
	a.Accepted = a.Token >= s.highest[a.Key]
	if a.Accepted {
		s.highest[a.Key] = a.Token
	}
	s.attempts = append(s.attempts, a)
	return a.Accepted
}

// Close ends all connections and returns the attempts in their order.
func (s *Server) Close() []history.Attempt {
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
	return s.attempts
}

// Conn is one worker's connection to the register.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	out  *json.Encoder
}

// Dial connects to the register at path.
func Dial(path string) (*Conn, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, in: bufio.NewReader(conn), out: json.NewEncoder(conn)}, nil
}

// Write requests one write and returns whether it was accepted.
func (c *Conn) Write(a history.Attempt) (accepted bool, err error) {
	if err := c.out.Encode(a); err != nil {
		return false, err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return false, err
	}
	switch line {
	case "true\n":
		return true, nil
	case "false\n":
		return false, nil
	}
	return false, errors.New("register: answer " + line)
}

// Close ends the connection.
func (c *Conn) Close() { _ = c.conn.Close() }
