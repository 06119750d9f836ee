package method

import (
	"context"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	ctx context.Context
}

var global context.Context

type job struct{ ctx context.Context }

//lock:key="order:<id>"
func (s *Service) WithoutCancel(ctx context.Context, id int64) error {
	free := context.WithoutCancel(ctx) // want `context.WithoutCancel\(ctx\) owns no lock and goes on when "order:<id>" is lost`
	defer func() { _ = clean(context.WithoutCancel(ctx)) }()
	return clean(free)
}

//lock:key="order:<id>"
func (s *Service) Derived(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return clean(context.WithoutCancel(ctx)) // want `owns no lock`
}

//lock:key="order:<id>"
func (s *Service) Fenced(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	return write(context.WithoutCancel(ctx), token)
}

//lock:key="order:<id>"
func (s *Service) Goes(ctx context.Context, id int64) error {
	go clean(ctx) // want `ctx goes to a goroutine that the method does not wait for: once it has returned, the lock "order:<id>" is another's and ctx is cancelled`
	go func() {
		_ = clean(ctx) // want `ctx goes to a goroutine`
	}()
	go func(ctx context.Context) { _ = clean(ctx) }(context.Background())
	go clean(context.WithoutCancel(ctx))
	return nil
}

//lock:key="order:<id>"
func (s *Service) Waits(ctx context.Context, id int64) error {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		_ = clean(ctx)
	}()
	wg.Wait()
	return nil
}

//lock:key="order:<id>"
func (s *Service) Receives(ctx context.Context, id int64) error {
	done := make(chan error, 1)
	go func() { done <- clean(ctx) }()
	return <-done
}

//lock:key="order:<id>"
func (s *Service) Stores(ctx context.Context, id int64) error {
	s.ctx = ctx // want `s.ctx outlives the method: its context owns the lock "order:<id>" only until then, and is cancelled after`
	global, _ = context.WithCancel(ctx)
	global = ctx                 // want `global outlives the method`
	s.ctx = context.Background() // owns nothing anyway
	j := job{ctx: ctx}
	j.ctx = ctx
	return clean(j.ctx)
}

func (s *Service) free(ctx context.Context) {
	s.ctx = ctx
	go clean(context.WithoutCancel(ctx))
}

func byHand(ctx context.Context, l *lock.Locker, s *Service) error {
	return l.Do(ctx, nil, "k", func(ctx context.Context) error {
		go clean(ctx) // want `ctx goes to a goroutine`
		return nil
	})
}

func clean(ctx context.Context) error               { return nil }
func write(ctx context.Context, token uint64) error { return nil }
