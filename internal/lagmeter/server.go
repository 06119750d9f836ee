package lagmeter

import (
	"context"
	"sync"
	"time"
)

const (
	every = 100 * time.Millisecond // from an answer to the next request
	quick = 20 * time.Millisecond  // an answer is a lapse only if it takes longer than the quickest answer plus this
)

// Server records how long the answers of a server take. A [Meter] can't measure that, because a server
// is another process and may wait for a disk. Its methods are safe for concurrent use.
type Server struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	asked  time.Time     // when the request without an answer was sent; zero if there is none
	least  time.Duration // the quickest answer so far: a server that always takes this long has no lapse
	lapses []lapse       // by is the whole time of an answer
}

// Watch returns a Server that calls ask until Stop. ask sends one request to the server, and
// returns when the server has answered.
func Watch(ask func(context.Context)) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cancel: cancel}
	s.done.Go(func() { s.run(ctx, ask) })
	return s
}

// Stop ends the requests. It waits for the last one.
func (s *Server) Stop() {
	s.cancel()
	s.done.Wait()
}

// Since returns by how much a time measured since begin may be too long. It returns 0 if the
// server answers as quickly as usual, or if the Server is nil.
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
		all += every // the lapse may have begun just after an answer
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

// question records that a request was sent at this time.
func (s *Server) question(asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked
}

// answer records how long a request took.
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
