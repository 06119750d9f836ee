package testserver

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// Instance is a private server, which may be stopped, killed and restarted. Its methods may be
// called from any goroutine of the test. If one fails, the test fails.
type Instance struct {
	// Command authenticates with User and Password, if Password is set.
	User, Password string

	t     testing.TB
	place *place

	mu      sync.Mutex // guards process
	process *process
}

func startPrivate(t testing.TB, s *Server, args []string) *Instance {
	t.Helper()
	need(t, s)
	place, process, err := settle(t.Context(), s, args)
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	i := &Instance{t: t, place: place, process: process}
	t.Cleanup(func() {
		i.current().kill()
		place.leave()
	})
	return i
}

// need ends the test unless s can be started.
func need(t testing.TB, s *Server) {
	t.Helper()
	if _, err := s.Find(); err == nil {
		return
	} else if s.required() {
		t.Fatalf("testserver: %v, and this run requires it; run %s", err, s.installHint())
	} else {
		t.Skipf("SKIPPED, NOT TESTED: %v; run %s", err, s.installHint())
	}
}

// Addr returns the server's address, which never changes.
func (i *Instance) Addr() string { return i.place.launch.Addr() }

// Stop freezes all processes of the server (SIGSTOP): connections stay open, but get no answer.
// When Stop returns, the server has stopped.
func (i *Instance) Stop() {
	i.t.Helper()
	p := i.current()
	err := freeze(p.cmd.Process.Pid)
	if err == nil {
		err = awaitStop(p.cmd.Process.Pid)
	}
	if err != nil {
		i.t.Errorf("testserver: stop %s: %v", p.server.Name, err)
		return
	}
	for _, child := range p.children() { // a stopped parent starts no more
		if freeze(child) == nil {
			_ = awaitStop(child) // it fails if the process has ended
		}
	}
}

// awaitStop returns when the process has stopped.
func awaitStop(pid int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if stopped, err := isStopped(pid); err != nil || stopped {
			return err
		}
		<-tick.C
	}
}

// Cont lets a stopped server continue.
func (i *Instance) Cont() {
	p := i.current()
	for _, child := range p.children() {
		_ = thaw(child)
	}
	_ = thaw(p.cmd.Process.Pid)
}

// Kill ends the server with kill -9. Its port stays reserved for Restart.
func (i *Instance) Kill() { i.current().kill() }

// Restart kills the server if it runs, and starts it again at the same port, with empty memory.
// It returns when the server answers.
func (i *Instance) Restart() {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.process
	old.kill()
	// Not the test's own ctx: a clean-up function may restart a server as well.
	for try := 1; ; try++ {
		p, err := start(context.WithoutCancel(i.t.Context()), old.server, i.place.launch)
		if err == nil {
			i.process = p
			return
		}
		if !errors.Is(err, errPortTaken) || try == startTries {
			i.t.Errorf("testserver: restart: %v", err)
			return
		}
	}
}

func (i *Instance) current() *process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.process
}

// shared is a server that the tests of a process share. It is the one of the wrapper, or else one
// that runs as long as a test uses it.
type shared struct {
	server *Server

	mu      sync.Mutex // guards the rest
	users   int
	place   *place
	process *process
}

func (s *shared) addr(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv(s.server.Env); addr != "" {
		return addr
	}
	need(t, s.server)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		var err error
		s.place, s.process, err = settle(t.Context(), s.server, nil)
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	s.users++
	t.Cleanup(s.leave)
	return s.place.launch.Addr()
}

func (s *shared) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users == 0 {
		s.process.kill()
		s.place.leave()
	}
}
