package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// scope is a testing.TB outside of a test, for testserver and faultproxy. Clean-ups run when
// it ends, and failures become its error.
type scope struct {
	testing.TB // nil: they call only methods that scope implements
	ctx        context.Context

	mu       sync.Mutex
	cleanups []func()
	failures []string
}

// failed is the value with which Fatalf panics.
type failed struct{}

// within runs do in a new scope.
func within(ctx context.Context, do func(*scope) error) (err error) {
	s := &scope{ctx: ctx}
	defer func() {
		s.end()
		err = errors.Join(err, s.taken())
	}()
	defer func() {
		switch r := recover(); r.(type) {
		case nil, failed:
		default:
			panic(r)
		}
	}()
	return do(s)
}

func (s *scope) end() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		last := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		last()
	}
}

// taken returns and removes the failures so far.
func (s *scope) taken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all error
	for _, text := range s.failures {
		all = errors.Join(all, errors.New(text))
	}
	s.failures = nil
	return all
}

func (s *scope) Context() context.Context { return s.ctx }
func (s *scope) Helper()                  {}

func (s *scope) Cleanup(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, do)
}

func (s *scope) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *scope) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	panic(failed{})
}

func (s *scope) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// Skipf is fatal too, because a soak that tests nothing has not passed.
func (s *scope) Skipf(format string, args ...any) { s.Fatalf(format, args...) }
