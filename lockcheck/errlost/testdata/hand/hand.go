package hand

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

func silent(ctx context.Context, l *lock.Locker) error {
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(nil) // want `Release\(nil\) drops the loss of the lock`
	return ctx.Err()
}

func nowhere(ctx context.Context, l *lock.Locker) {
	_, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return
	}
	defer held.Release(nil) // no one to tell
}

func told(ctx context.Context, l *lock.Locker) (err error) {
	_, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	return nil
}

func literal(ctx context.Context, l *lock.Locker) func() error {
	return func() error {
		_, held, err := l.Acquire(ctx, nil, "k")
		if err != nil {
			return err
		}
		defer held.Release(nil) // want `drops the loss`
		return nil
	}
}
