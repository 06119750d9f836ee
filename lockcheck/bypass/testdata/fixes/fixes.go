package fixes

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type nested interface {
	Pay(ctx context.Context, id int64) error
	Book(ctx context.Context, id int64) error
	Check(ctx context.Context, id int64) error
}

type Service struct {
	self   nested
	locker *lock.Locker
}

func New(locker *lock.Locker) *ServiceWithLock {
	s := &Service{locker: locker}
	w := NewServiceWithLock(s, locker)
	s.self = w
	return w
}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="book:<id>"
func (s *Service) Book(ctx context.Context, id int64) error {
	return s.Pay(ctx, id) // want `is called without its lock`
}

//lock:key="report"
func Report(ctx context.Context, day int) error { return nil }

func (s *Service) Nightly(ctx context.Context, other *Service) error {
	if err := Report(ctx, 1); err != nil { // want `fixes.Report is called without its lock "report": ReportWithLock takes it`
		return err
	}
	if err := ReportWithLock(ctx, s.locker, 1); err != nil {
		return err
	}
	if err := other.Pay(ctx, 1); err != nil { // want `is called without its lock`
		return err
	}
	return s.Book(ctx, 1) // want `is called without its lock`
}

// Two fields fit: which is meant is not for us to say.
type Twice struct{ a, b *TwiceWithLock }

//lock:key="twice"
func (t *Twice) Do(ctx context.Context) error { return nil }

func (t *Twice) All(ctx context.Context) error {
	return t.Do(ctx) // want `is called without its lock`
}

type Direct struct{ guarded *DirectWithLock }

//lock:key="direct"
func (d *Direct) Do(ctx context.Context) error { return nil }

func (d *Direct) All(ctx context.Context) error {
	return d.Do(ctx) // want `is called without its lock`
}

// What is written into these calls would not compile: they stay.
func both() (context.Context, int) { return context.Background(), 1 }

func (s *Service) Spread() error {
	return Report(both()) // want `is called without its lock`
}

func (s *Service) Hiding(ctx context.Context, days []int) {
	for _, s := range days {
		Report(ctx, s) // want `is called without its lock`
	}
}

func (_ *Service) Nameless(ctx context.Context) error {
	return Report(ctx, 1) // want `is called without its lock`
}

// Their wrappers would find the lock held.
//
//lock:key="order:<id>"
func (s *Service) Refund(ctx context.Context, id int64) error {
	return s.Pay(ctx, id) // want `is called without its lock`
}

//lock:key="book:<id>"
func (s *Service) Rebook(ctx context.Context, id int64) error {
	if id == 0 {
		return nil
	}
	return s.Rebook(ctx, id-1) // want `is called without its lock`
}

//lock:key="order:<id>" reentrant
func (s *Service) Check(ctx context.Context, id int64) error { return nil }

//lock:key="order:<id>"
func (s *Service) Checked(ctx context.Context, id int64) error {
	return s.Check(ctx, id) // want `is called without its lock`
}
