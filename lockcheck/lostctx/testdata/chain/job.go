package chain

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

// A job keeps the context of the method that makes it.
type job struct {
	ctx, began context.Context
	s          *Service
	id         int64
}

//lock:key="order:<id>" reentrant
func (s *Service) Job(ctx context.Context, id int64) error {
	return s.job(ctx, id).run()
}

func (s *Service) job(ctx context.Context, id int64) *job {
	return &job{ctx: ctx, began: context.Background(), s: s, id: id}
}

func (j *job) run() error {
	if j.id < 0 {
		return j.s.self.Book(j.began, j.id) // want `the field j.began does not own`
	}
	return j.s.self.Book(j.ctx, j.id)
}

// A term keeps that of its leader.
type term[T any] struct {
	context.Context
	s *Service
}

func (s *Service) Lead(ctx context.Context, locker *lock.Locker) error {
	return locker.Lead(ctx, &lock.Policy{}, "leader", func(ctx context.Context) error {
		t := term[int]{ctx, s}
		return t.run()
	})
}

func (t *term[T]) run() error { return t.s.again(t.Context) }

func (s *Service) again(ctx context.Context) error { return s.self.Job(ctx, 1) }
