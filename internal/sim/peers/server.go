package peers

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
)

// server is the Redis of an episode with the data that the oracles need.
type server struct {
	*sim.Redis

	mu      sync.Mutex // guards the rest
	run     int        // number of starts
	down    bool
	running chan struct{}     // closed while it is not paused
	scripts map[string]string // texts of the scripts that were sent, by SHA1
	senders map[string]int    // by word that may be an owner: the process that sent it
}

func newServer() *server {
	s := &server{Redis: sim.NewRedis(), running: make(chan struct{}), scripts: map[string]string{}, senders: map[string]int{}}
	close(s.running)
	return s
}

// Pause stops the server. Its connections stay.
func (s *server) Pause() {
	s.mu.Lock()
	if isClosed(s.running) {
		s.running = make(chan struct{})
	}
	s.mu.Unlock()
	s.Redis.Pause()
}

// Resume ends Pause.
func (s *server) Resume() {
	s.mu.Lock()
	if !isClosed(s.running) {
		close(s.running)
	}
	s.mu.Unlock()
	s.Redis.Resume()
}

// Stop kills the server.
func (s *server) Stop() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.Redis.Stop()
}

// Start starts the server again, with its data or empty.
func (s *server) Start(empty bool) {
	s.mu.Lock()
	s.down = false
	s.run++
	s.mu.Unlock()
	s.Redis.Start(empty)
}

// runs returns the number of starts of the server.
func (s *server) runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// deliver executes a request that arrives outside of its connection, unless the run of the server
// to which it was sent is over.
func (s *server) deliver(words []string, run int) {
	for {
		s.mu.Lock()
		running, gone := s.running, s.down || s.run != run
		s.mu.Unlock()
		if gone {
			return
		}
		if isClosed(running) {
			break
		}
		<-running
	}
	_, _ = s.Do(words...)
}

// note records the sender of a request and returns the text of the script that it calls.
func (s *server) note(process int, words []string) (script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isCommand(words, "eval"):
		script = words[1]
		sum := sha1.Sum([]byte(script))
		s.scripts[hex.EncodeToString(sum[:])] = script
	case isCommand(words, "script") && isLoad(words):
		sum := sha1.Sum([]byte(words[2]))
		s.scripts[hex.EncodeToString(sum[:])] = words[2]
	case isCommand(words, "evalsha"):
		script = s.scripts[words[1]]
	}
	for _, w := range words {
		if _, known := s.senders[w]; !known && len(w) >= ownerLeast && len(w) <= ownerMost {
			s.senders[w] = process
		}
	}
	return script
}

func isLoad(words []string) bool { return len(words) == 3 && strings.EqualFold(words[1], "load") }

// ownerLeast and ownerMost are the limits of the length of an owner that libraries write.
const ownerLeast, ownerMost = 16, 64

// lease is the state of one lock at the server.
type lease struct {
	owner string        // "" if it is free
	left  time.Duration // until it expires; negative if it never expires
	ends  time.Time     // when it expires, if it does
}

// look returns the state of the lock at the Redis key, which is a string, or a hash with the
// owner as the field.
func (s *server) look(key string) (l lease) {
	value, err := s.Do("GET", key)
	if err != nil {
		value, _ = s.Do("HKEYS", key)
		if fields, ok := value.([]any); ok && len(fields) > 0 {
			value = fields[0]
		}
	}
	l.owner, _ = value.(string)
	if l.owner == "" {
		return lease{}
	}
	ms, _ := s.Do("PTTL", key)
	n, _ := ms.(int)
	l.left = time.Duration(n) * time.Millisecond
	l.ends = time.Now().Add(l.left)
	return l
}

// sender returns the process that sent owner first, or 0.
func (s *server) sender(owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.senders[owner]
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
