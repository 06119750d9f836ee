package unread

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct{}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="count:<id>"
func (s *Service) Count(ctx context.Context, id int64) (int, error) { return 0, nil }

func ship(id int64) error { return nil }
func log(err error)       {}

var _ = (*ServiceWithLock)(nil).Pay(nil, 1) // want `the error of unread.ServiceWithLock.Pay is dropped`

func overwritten(ctx context.Context, w *ServiceWithLock) error {
	err := w.Pay(ctx, 1) // want `err is assigned again on line 25, and no one has looked at the error of unread.ServiceWithLock.Pay: it says whether "order:<id>" was held`
	println("paid")
	err = ship(1)
	if err != nil {
		return err
	}
	n, err := w.Count(ctx, 1) // want `err is assigned again on line 30`
	m, err := w.Count(ctx, int64(n))
	println(m)
	return err
}

func blank(ctx context.Context, w *ServiceWithLock) error {
	err := w.Pay(ctx, 1) // want `no one looks at err, the error of unread.ServiceWithLock.Pay`
	_ = err
	if ctx != nil {
		err := w.Pay(ctx, 2) // want `no one looks at err`
		_ = err
	}
	return nil
}

func forgotten(ctx context.Context, w *ServiceWithLock) error {
	err := ship(1)
	if err != nil {
		return err
	}
	err = w.Pay(ctx, 1) // want `no one looks at err`
	return nil
}

// Read in between, in a closure, by a return, in the next round, by who has the address.
func read(ctx context.Context, w *ServiceWithLock, ids []int64) (last error) {
	err := w.Pay(ctx, 1)
	log(err)
	err = ship(1)
	if err != nil {
		err = w.Pay(ctx, 2)
	} else {
		err = w.Pay(ctx, 3)
	}
	for _, id := range ids {
		if err != nil {
			break
		}
		err = w.Pay(ctx, id)
	}
	err = w.Pay(ctx, 4)
	if again := ship(4); again != nil {
		err = again
	}
	log(err)
	last = w.Pay(ctx, 5)
	if ctx != nil {
		return
	}
	last = w.Pay(ctx, 6)
	return
}

func captured(ctx context.Context, w *ServiceWithLock, l *lock.Locker) {
	var err error
	defer func() { log(err) }()
	err = w.Pay(ctx, 1)
}

func address(ctx context.Context, w *ServiceWithLock) {
	var err error
	into := &err
	err = w.Pay(ctx, 1)
	log(*into)
}

// What has no lock is no matter of this check.
func other(ctx context.Context) error {
	err := ship(1)
	err = ship(2)
	return err
}
