package tx

import (
	"context"
	"database/sql"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct{ db *sql.DB }

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, tx *sql.Tx, id int64) error { return nil }

//lock:key="whole:<id>"
func (s *Service) Whole(ctx context.Context, id int64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE orders"); err != nil {
		return err
	}
	return tx.Commit()
}

func inside(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := w.Pay(ctx, tx, 1); err != nil { // want `the lock "order:<id>" is released before tx commits \(line 37\): take it around the whole transaction`
		return err
	}
	return tx.Commit()
}

// The transaction is over before the lock is taken, or is not given to it.
func outside(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.Whole(ctx, 1); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return w.Pay(ctx, tx, 1)
}

func run(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error { return nil }

func literal(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	return run(ctx, db, func(tx *sql.Tx) error {
		if err := w.Whole(ctx, 1); err != nil {
			return err
		}
		return w.Pay(ctx, tx, 1) // want `the lock "order:<id>" is released before run commits the transaction of tx`
	})
}

func byHand(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	err = l.Do(ctx, nil, "order:1", func(ctx context.Context) error { // want `the lock "order:1" is released before tx commits`
		_, err := tx.ExecContext(ctx, "UPDATE orders")
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func around(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	return l.Do(ctx, nil, "order:1", func(ctx context.Context) error {
		return run(ctx, db, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE orders")
			return err
		})
	})
}

func deferred(ctx context.Context, db *sql.DB, l *lock.Locker) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Commit() // want `this commit runs after the lock is released on line 100`
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	_, err = tx.ExecContext(ctx, "UPDATE orders")
	return err
}

func rightly(ctx context.Context, db *sql.DB, l *lock.Locker) (err error) {
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = tx.Commit() }()
	_, err = tx.ExecContext(ctx, "UPDATE orders")
	return err
}
