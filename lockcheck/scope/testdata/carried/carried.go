package carried

import (
	"context"
	"database/sql"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	db *sql.DB
	tx *sql.Tx
}

type unit struct {
	id int64
	tx *sql.Tx
}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="unit:<u.id>"
func (s *Service) Save(ctx context.Context, u *unit) error { return nil }

type key struct{}

func withTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, key{}, tx)
}

func inContext(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := w.Pay(ctx, 1); err != nil { // before the context has it
		return err
	}
	ctx = context.WithValue(ctx, key{}, tx)
	if err := w.Pay(ctx, 1); err != nil { // want `the lock "order:<id>" is released before tx commits \(line 52\): take it around the whole transaction`
		return err
	}
	timeout, cancel := context.WithTimeout(ctx, 1)
	defer cancel()
	if err := w.Pay(timeout, 1); err != nil { // want `is released before tx commits`
		return err
	}
	if err := w.Pay(withTx(ctx, tx), 1); err != nil { // want `is released before tx commits`
		return err
	}
	return tx.Commit()
}

// The calls are given the context that has no transaction.
func beside(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	inner := withTx(ctx, tx)
	var id int64
	if err := tx.QueryRowContext(inner, "SELECT id").Scan(&id); err != nil {
		return err
	}
	if err := w.Pay(ctx, id); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return w.Pay(inner, id)
}

func inStruct(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	u := &unit{tx: tx}
	if err := w.Save(ctx, u); err != nil { // want `the lock "unit:<u.id>" is released before tx commits`
		return err
	}
	var v unit
	v.tx = tx
	if err := w.Save(ctx, &v); err != nil { // want `is released before tx commits`
		return err
	}
	if err := w.Save(ctx, &unit{id: 7}); err != nil {
		return err
	}
	return tx.Commit()
}

func ofField(ctx context.Context, w *ServiceWithLock, u *unit) error {
	if err := w.Save(ctx, u); err != nil { // want `is released before u.tx commits`
		return err
	}
	if err := w.Pay(ctx, u.id); err != nil { // is given the number alone
		return err
	}
	return u.tx.Commit()
}

func inWrapped(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	w := NewServiceWithLock(&Service{tx: tx}, l)
	if err := w.Pay(ctx, 1); err != nil { // want `is released before tx commits`
		return err
	}
	free := NewServiceWithLock(&Service{db: db}, l)
	if err := free.Pay(ctx, 1); err != nil {
		return err
	}
	return tx.Commit()
}

type manager struct{}

func (manager) WithinTransaction(ctx context.Context, f func(ctx context.Context) error) error {
	return f(ctx)
}

func (manager) Each(ctx context.Context, f func(ctx context.Context) error) error { return f(ctx) }

func managed(ctx context.Context, m manager, w *ServiceWithLock) error {
	err := m.WithinTransaction(ctx, func(inner context.Context) error {
		if err := w.Pay(ctx, 1); err != nil { // not in the transaction
			return err
		}
		return w.Pay(inner, 1) // want `is released before m.WithinTransaction commits the transaction of inner`
	})
	if err != nil {
		return err
	}
	return m.Each(ctx, func(ctx context.Context) error { return w.Pay(ctx, 1) })
}
