package lagmeter

import (
	"context"
	"sync"
	"time"
)

const (
	every = 200 * time.Millisecond // from an answer to the next question
	quick = 20 * time.Millisecond  // an answer that takes no longer is no lapse
)

// Server notes how long the answers of a server take, which a [Meter] knows nothing of: that is
// another process, with a disk. Its methods are safe for concurrent use.
type Server struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	asked  time.Time // when the question was put that has no answer yet; zero between two
	lapses []lapse
}

// Watch returns a Server that calls ask until Stop. ask puts one question to the server, and
// returns once that has answered.
func Watch(ask func(context.Context)) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cancel: cancel}
	s.done.Go(func() { s.run(ctx, ask) })
	return s
}

// Stop ends the questions. It waits for the last one.
func (s *Server) Stop() {
	s.cancel()
	s.done.Wait()
}

// Since returns what a time that was measured since begin may be too long by: nothing, with a
// server that answers at once. A nil Server is one.
func (s *Server) Since(begin time.Time) (all time.Duration) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked.IsZero() {
		all = max(time.Since(s.asked)-quick, 0)
	}
	for i := len(s.lapses) - 1; i >= 0 && s.lapses[i].at.After(begin); i-- {
		all += s.lapses[i].by
	}
	if all > 0 {
		all += every // it may have begun just after an answer
	}
	return all
}

func (s *Server) run(ctx context.Context, ask func(context.Context)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		begin := time.Now()
		s.note(begin, 0)
		ask(ctx)
		s.note(time.Time{}, time.Since(begin)-quick)
		timer.Reset(every)
	}
}

// note takes down that a question is under way since then, or that one was answered too late by this.
func (s *Server) note(asked time.Time, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked
	if by > 0 {
		s.lapses = append(s.lapses, lapse{at: time.Now(), by: by})
	}
}
