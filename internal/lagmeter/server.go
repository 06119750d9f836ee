package lagmeter

import (
	"context"
	"sync"
	"time"
)

const (
	every = 100 * time.Millisecond // from an answer to the next question
	quick = 20 * time.Millisecond  // an answer that takes no more than that above the quickest is no lapse
)

// Server notes how long the answers of a server take. A [Meter] can't measure that, because a server
// is another process and may wait for a disk. Its methods are safe for concurrent use.
type Server struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	asked  time.Time     // when the question was put that has no answer yet; zero between two
	least  time.Duration // that an answer took so far: it is no lapse of a server that always takes so long
	lapses []lapse       // by the whole time that each answer took
}

// Watch returns a Server that calls ask until Stop. ask sends one request to the server, and
// returns when the server has answered.
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

// Since returns by how much a time measured since begin may be too long. That is nothing if the
// server answers as quickly as ever, or if the Server is nil.
func (s *Server) Since(begin time.Time) (all time.Duration) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var worst time.Duration
	add := func(took time.Duration) {
		by := max(took-s.least-quick, 0)
		worst, all = max(worst, by), all+by
	}
	if !s.asked.IsZero() {
		add(time.Since(s.asked))
	}
	for i := len(s.lapses) - 1; i >= 0 && s.lapses[i].at.After(begin); i-- {
		add(s.lapses[i].by)
	}
	if worst >= every/2 {
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
		s.question(begin)
		ask(ctx)
		s.answer(time.Since(begin))
		timer.Reset(every)
	}
}

// question notes that a request was sent at this time.
func (s *Server) question(asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked
}

// answer notes how long a request took.
func (s *Server) answer(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Time{}
	if s.least == 0 || took < s.least {
		s.least = took
	}
	if took > quick {
		s.lapses = append(s.lapses, lapse{at: time.Now(), by: took})
	}
}
