package engine

import (
	"context"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Shared is a question to an engine that all share who ask it at the same time. Its zero value
// is ready.
type Shared struct {
	mu   sync.Mutex
	call *sharedCall // under way, or nil
}

type sharedCall struct {
	done chan struct{}
	err  error
}

// Do waits for the question that is under way, or has life ask one by ask, and returns its
// error. So an engine that does not answer holds none of many callers up for longer than one
// question lasts, or until ctx ends.
func (s *Shared) Do(ctx context.Context, life *Life, ask func(ctx context.Context) error) error {
	call := s.begin(life, ask)
	if call == nil {
		return driver.ErrClosed
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.err != nil && life.Context().Err() != nil { // which cut it
		return driver.ErrClosed
	}
	return call.err
}

// begin returns the call that is under way from now on, or nil if life has ended.
func (s *Shared) begin(life *Life, ask func(ctx context.Context) error) *sharedCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		return s.call
	}
	call := &sharedCall{done: make(chan struct{})}
	if !life.Go(func(ctx context.Context) {
		call.err = ask(ctx)
		s.mu.Lock()
		s.call = nil
		s.mu.Unlock()
		close(call.done)
	}) {
		return nil
	}
	s.call = call
	return call
}
