package iface

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type booker interface {
	Book(ctx context.Context, id int64) error
}

type Service struct{ self booker }

func New(l *lock.Locker) *ServiceWithLock {
	s := &Service{}
	w := NewServiceWithLock(s, l)
	s.self = w
	return w
}

//lock:key="order:<id>" reentrant
func (s *Service) Pay(ctx context.Context, id int64) error {
	return s.self.Book(context.Background(), id) // want `context.Background\(\) does not own "order:<id>".*iface.booker.Book \(iface.go:24\) = \*ServiceWithLock \(iface.go:18\), which locks "order:<id>"`
}

//lock:key="order:<id>" reentrant
func (s *Service) Book(ctx context.Context, id int64) error { return nil }
