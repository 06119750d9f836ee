package kept

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

//lock:key="order:<id>"
func (s *Service) Job(ctx context.Context, id int64) error {
	j := &job{began: context.Background(), s: s, id: id}
	j.ctx = ctx
	return j.save()
}

func (j *job) save() error {
	if token, ok := lock.Token(j.began); ok { // want `lock.Token finds no token: the field j.began owns no lock`
		return j.s.store.Save(j.began, j.id, token)
	}
	token, ok := lock.Token(j.ctx)
	if !ok {
		return lock.ErrLost
	}
	return j.s.store.Save(j.ctx, j.id, token)
}

// A term keeps that of its leader.
type term[T any] struct {
	context.Context
	ended chan T
}

func (s *Service) Lead(ctx context.Context, locker *lock.Locker) error {
	return locker.Lead(ctx, &lock.Policy{}, "leader", func(ctx context.Context) error {
		t := term[int]{ctx, nil}
		return t.run()
	})
}

func (t *term[T]) run() error {
	_, _ = lock.Token(t.Context)
	return nil
}
