package engine

import (
	"context"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// SingleFlight is a request to an engine whose answer concurrent callers share. Its zero value is
// ready for use.
type SingleFlight struct {
	mu   sync.Mutex
	call *flightCall // the call that is under way, or nil
}

type flightCall struct {
	done chan struct{}
	err  error
}

// Do waits for the call of ask that is under way, or starts one in a goroutine of life, and returns
// its error. If the engine does not answer, each of many callers waits for one call only, or until
// ctx ends.
func (s *SingleFlight) Do(ctx context.Context, life *Life, ask func(ctx context.Context) error) error {
	call := s.begin(life, ask)
	if call == nil {
		return driver.ErrClosed
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.err != nil && life.Context().Err() != nil { // the end of life cancelled the call
		return driver.ErrClosed
	}
	return call.err
}

// begin returns the call that is under way, or starts one. It returns nil if life has ended.
func (s *SingleFlight) begin(life *Life, ask func(ctx context.Context) error) *flightCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != nil {
		return s.call
	}
	call := &flightCall{done: make(chan struct{})}
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
