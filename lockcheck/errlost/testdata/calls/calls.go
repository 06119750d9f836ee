package calls

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct{}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) (int64, error) { return 0, nil }

//lock:key="book"
func (s *Service) Book(ctx context.Context) error { return nil }

func (s *Service) Free(ctx context.Context) error { return nil }

type booker interface {
	Book(ctx context.Context) error
}

type Annotated interface {
	//lock:key="save:<id>"
	Save(ctx context.Context, id int64) error
}

func dropped(ctx context.Context, w *ServiceWithLock, b booker, a Annotated, locker *lock.Locker) {
	w.Book(ctx)                                                              // want `the error of calls.ServiceWithLock.Book is dropped: it says whether "book" was held, and to the end`
	_ = w.Book(ctx)                                                          // want `is dropped`
	_, _ = w.Pay(ctx, 1)                                                     // want `the error of calls.ServiceWithLock.Pay is dropped: it says whether "order:<id>" was held`
	n, _ := w.Pay(ctx, 1)                                                    // want `is dropped`
	go w.Book(ctx)                                                           // want `is dropped by the go statement`
	defer w.Book(ctx)                                                        // want `is dropped by the defer statement`
	b.Book(ctx)                                                              // want `the error of calls.booker.Book is dropped`
	a.Save(ctx, 1)                                                           // want `the error of calls.Annotated.Save is dropped`
	lock.Check(ctx)                                                          // want `the error of lock.Check is dropped: it is all that Check does`
	_ = lock.Check(ctx)                                                      // want `is dropped`
	_ = locker.Do(ctx, nil, "k", func(context.Context) error { return nil }) // want `the error of Do is dropped`
	_ = n
	w.Free(ctx)     // has no lock
	_ = w.Book(ctx) //lockcheck:ignore errlost a hint that may be lost
}

func kept(ctx context.Context, w *ServiceWithLock, b booker) error {
	var x booker = w
	_, err := w.Pay(ctx, 1)
	if err := lock.Check(ctx); err != nil {
		return err
	}
	go func() {
		if err := w.Book(ctx); err != nil {
			panic(err)
		}
	}()
	if err != nil {
		return x.Book(ctx)
	}
	return b.Book(ctx)
}
