package redislock

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// linkTo returns a link to a stub.
func linkTo(t *testing.T, wary bool, answer func(command []string) string) *link {
	t.Helper()
	client := redis.NewClient(singleOptions(&redis.Options{
		Addr: stub(t, answer), ReadTimeout: time.Second,
	}))
	t.Cleanup(func() { _ = client.Close() })
	s := newLink(client, wary, new(atomic.Bool))
	t.Cleanup(func() { _ = s.close() })
	return s
}

func calls3() []*call {
	var all []*call
	for _, s := range []*script{acquireScript, releaseScript, acquireScript} {
		all = append(all, &call{request: request{script: s, args: [7]string{"id"}, nargs: 1}, done: make(chan struct{})})
	}
	return all
}

// A connection that is lost between the calls of a pipeline, or before them, ends
// each of them with an error, and the next pipeline has another connection.
func TestLinkLosesItsConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wary   bool
		answer func(command []string) string
	}{
		"while the server is examined": {true, func(command []string) string { return "" }},
		"behind an unknown script": {false, func() func([]string) string {
			said := false
			return func([]string) string {
				if said {
					return ""
				}
				said = true
				return "-NOSCRIPT No matching script.\r\n"
			}
		}()},
		"at once": {false, func([]string) string { return "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := linkTo(t, c.wary, c.answer)
			for range 2 {
				all := calls3()
				for left := all; len(left) > 0; {
					left = s.land(s.send(left, false))
				}
				for _, c := range all {
					receive(t, "its end", c.done)
					if c.err == nil {
						t.Error("a call without an answer has no error")
					}
				}
			}
		})
	}
}

// A connection that is lost as one call of a pipeline has the server examined is lost
// for all of them before they were sent: each is sent again, also to a server by
// itself. A proxy that hangs up on the question is not asked by the others either.
func TestCallsBesideTheExamination(t *testing.T) {
	t.Parallel()
	for _, wary := range []bool{true, false} {
		var asked atomic.Int64
		s := linkTo(t, wary, func(command []string) string {
			switch {
			case command[0] != "info":
				return freed
			case asked.Add(1) == 1:
				return ""
			}
			return answerOf(wholeServer)
		})
		b := newTestBackend(t, s.options.Addr) // only asked what it thinks
		before, after := calls3(), calls3()
		before = append(calls3()[1:2], before...) // a release is first, so that something is to be sent
		s.land(s.send(before, false))
		for i, c := range before {
			if _, passing := b.lanes.passing(c.err, time.Now()); !passing || !errors.Is(c.err, errNotSent) {
				t.Errorf("wary %t, call %d: %v, is sent again %t", wary, i, c.err, passing)
			}
		}
		s.land(s.send(after, false))
		for i, c := range after {
			if c.err != nil {
				t.Errorf("wary %t, call %d of the next pipeline: %v", wary, i, c.err)
			}
		}
		if want := map[bool]int64{true: 3, false: 1}[wary]; asked.Load() != want {
			t.Errorf("wary %t: asked %d times, want %d", wary, asked.Load(), want)
		}
	}
}

// A pipeline that goes once the one before it was answered is waited for as long as
// any, however long that one took, and on whatever connection.
func TestPipelineAfterASlowOne(t *testing.T) {
	t.Parallel()
	s := linkTo(t, false, func([]string) string {
		time.Sleep(3 * glance)
		return freed
	})
	for i, lost := range []bool{false, false, true} {
		if lost {
			s.drop()
		}
		c := calls3()[1] // a release: the server is asked nothing else
		s.land(s.send([]*call{c}, false))
		if c.err != nil {
			t.Errorf("pipeline %d: %v", i+1, c.err)
		}
	}
}

// Nothing waits for the answer to a greeting: what is sent stands in the socket of
// a server that has stopped, and is done when it goes on.
func TestNothingWaitsForTheGreeting(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heard := make(chan string, 1)
	go func() { // it accepts, reads, and says nothing
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 4096)
		n, _ := conn.Read(b)
		heard <- string(b[:n])
		_, _ = conn.Read(b)
	}()
	client := redis.NewClient(singleOptions(&redis.Options{Addr: listener.Addr().String()}))
	defer client.Close()
	s := newLink(client, true, new(atomic.Bool))
	defer s.close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	undo := &call{request: request{script: releaseScript, args: [7]string{"id"}, nargs: 1}}
	wantIs(t, s.one(ctx, undo), errNoAnswer)
	if got := receive(t, "a command", heard); !strings.Contains(got, releaseScript.hash) {
		t.Errorf("the server was sent %q", got)
	}
}
