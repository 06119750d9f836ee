package chain

import (
	"context"
	"time"

	"example.com/lostctx/helper"
	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	self *ServiceWithLock
	ctx  context.Context
}

var background = context.Background()

//lock:key="order:<id>" reentrant
func (s *Service) Pay(ctx context.Context, id, other int64) error {
	if err := s.self.Book(ctx, id); err != nil {
		return err
	}
	if err := s.self.Book(context.Background(), id); err != nil { // want `context.Background\(\) does not own "order:<id>", which is held here and asked for again: chain.Service.Pay holds "order:<id>" -> chain.ServiceWithLock.Book \(chain.go:\d+\), which locks "order:<id>". It waits for itself; pass the ctx that the method got`
		return err
	}
	if err := s.self.Book(s.ctx, id); err != nil { // want `the field s.ctx does not own`
		return err
	}
	if err := s.self.Book(background, id); err != nil { // want `the variable background does not own`
		return err
	}
	if err := s.self.Book(lock.Detach(ctx), id); err != nil { // want `lock.Detach\(ctx\) does not own`
		return err
	}
	timeout, cancel := context.WithTimeout(context.TODO(), time.Second)
	defer cancel()
	if err := s.self.Book(timeout, id); err != nil { // want `context.TODO\(\) does not own`
		return err
	}
	// Another order, another lock: nothing waits for itself.
	if err := s.self.Book(context.Background(), other); err != nil {
		return err
	}
	if err := s.self.Try(context.Background(), id); err != nil {
		return err
	}
	if err := s.self.Other(context.Background(), id); err != nil {
		return err
	}
	return s.deep(ctx, id)
}

func (s *Service) deep(ctx context.Context, id int64) error {
	return helper.Run(context.Background(), s.self.Book, id) // want `context.Background\(\) does not own "order:<id>"`
}

//lock:key="order:<id>" reentrant
func (s *Service) Book(ctx context.Context, id int64) error { return nil }

//lock:key="order:<id>" reentrant try
func (s *Service) Try(ctx context.Context, id int64) error { return nil }

//lock:key="stock:<id>"
func (s *Service) Other(ctx context.Context, id int64) error { return nil }
