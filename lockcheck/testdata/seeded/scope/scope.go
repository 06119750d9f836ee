// Package scope ends locks before what they guard.
package scope

import (
	"context"
	"database/sql"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	db   *sql.DB
	tx   *sql.Tx
	self *ServiceWithLock
}

type unit struct {
	id int64
	tx *sql.Tx
}

type key struct{}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="given:<id>"
func (s *Service) PayIn(ctx context.Context, tx *sql.Tx, id int64) error { return nil }

//lock:key="unit:<u.id>"
func (s *Service) Save(ctx context.Context, u *unit) error { return nil }

//lock:key="whole:<id>"
func (s *Service) Whole(ctx context.Context, id int64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE a"); err != nil { // right: the lock is around the transaction
		return err
	}
	return tx.Commit()
}

func check(err error) {}

func withTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, key{}, tx)
}

func given(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	check(w.PayIn(ctx, tx, 1))  // mistake scope: the lock "given:<id>" is released before tx commits
	check(w.Pay(ctx, 1))        // right: is not given the transaction
	check(w.PayIn(ctx, nil, 1)) // right: is given none
	check(tx.Commit())
	return w.PayIn(ctx, tx, 1) // right: after the commit
}

func inContext(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	check(w.Pay(ctx, 1)) // right: the context has none yet
	inner := context.WithValue(ctx, key{}, tx)
	check(w.Pay(inner, 1)) // mistake scope: is released before tx commits
	timeout, cancel := context.WithTimeout(inner, 1)
	defer cancel()
	check(w.Pay(timeout, 1))         // mistake scope: is released before tx commits
	check(w.Pay(withTx(ctx, tx), 1)) // mistake scope: is released before tx commits
	check(w.Pay(ctx, 2))             // right: the outer context
	check(tx.Commit())
	return w.Pay(inner, 1) // right: after the commit
}

func inStruct(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	u := &unit{tx: tx}
	check(w.Save(ctx, u)) // mistake scope: the lock "unit:<u.id>" is released before tx commits
	var v unit
	v.tx = tx
	check(w.Save(ctx, &v))           // mistake scope: is released before tx commits
	check(w.Save(ctx, &unit{id: 7})) // right: has no transaction
	check(w.Pay(ctx, v.id))          // right: is given the number alone
	return tx.Commit()
}

func inParameter(ctx context.Context, w *ServiceWithLock, u *unit) error {
	check(w.Save(ctx, u))   // mistake scope: is released before u.tx commits
	check(w.Pay(ctx, u.id)) // right: is given the number alone
	return u.tx.Commit()
}

func inWrapped(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	w := NewServiceWithLock(&Service{tx: tx}, l)
	check(w.Pay(ctx, 1)) // mistake scope: is released before tx commits
	free := NewServiceWithLock(&Service{db: db}, l)
	check(free.Pay(ctx, 1)) // right: has no transaction
	return tx.Commit()
}

func run(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error { return nil }

func literal(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	return run(ctx, db, func(tx *sql.Tx) error {
		check(w.Whole(ctx, 1))     // right: is not given the transaction
		return w.PayIn(ctx, tx, 1) // mistake scope: is released before run commits the transaction of tx
	})
}

type manager struct{}

func (manager) WithTx(ctx context.Context, f func(ctx context.Context) error) error { return f(ctx) }
func (manager) RunInTransaction(ctx context.Context, f func(ctx context.Context) error) error {
	return f(ctx)
}
func (manager) Each(ctx context.Context, f func(ctx context.Context) error) error { return f(ctx) }

func managed(ctx context.Context, m manager, w *ServiceWithLock) {
	check(m.WithTx(ctx, func(inner context.Context) error {
		check(w.Pay(ctx, 1))   // right: not in the transaction
		return w.Pay(inner, 1) // mistake scope: is released before m.WithTx commits the transaction of inner
	}))
	check(m.RunInTransaction(ctx, func(ctx context.Context) error {
		return w.Pay(ctx, 1) // mistake scope: is released before m.RunInTransaction commits the transaction of ctx
	}))
	check(m.Each(ctx, func(ctx context.Context) error {
		return w.Pay(ctx, 1) // right: no transaction
	}))
}

func inDefer(ctx context.Context, db *sql.DB, w *ServiceWithLock) (err error) {
	check(w.PayIn(ctx, nil, 1)) // right: is given none
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer w.PayIn(ctx, tx, 1)        //lockcheck:ignore errlost right: runs after the commit
	defer check(w.PayIn(ctx, tx, 1)) // mistake scope: is released before tx commits
	defer func() {
		if err != nil {
			check(tx.Rollback())
			return
		}
		check(w.PayIn(ctx, tx, 1)) // mistake scope: is released before tx commits
		err = tx.Commit()
		check(w.PayIn(ctx, tx, 1)) // right: after the commit
	}()
	defer func() { check(w.PayIn(ctx, tx, 1)) }() // mistake scope: is released before tx commits
	check(w.Pay(ctx, 1))                          // right: is not given the transaction
	return w.PayIn(ctx, tx, 1)                    // mistake scope: the lock "given:<id>" is released before tx commits
}

func inLiterals(ctx context.Context, w *ServiceWithLock, tx *sql.Tx) {
	func() {
		defer tx.Commit()
		check(w.PayIn(ctx, tx, 1)) // mistake scope: is released before tx commits
	}()
	check(w.PayIn(ctx, tx, 1)) // right: after the commit
}

func atOnce(ctx context.Context, w *ServiceWithLock, tx *sql.Tx) {
	defer check(tx.Commit())
	check(w.PayIn(ctx, tx, 1)) // right: after the commit, an argument that is evaluated at once
}

func deferredAfter(ctx context.Context, db *sql.DB, w *ServiceWithLock) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { check(w.PayIn(ctx, tx, 1)) }() // right: runs after the commit
	return tx.Commit()
}

//lock:key="whole:<id>" reentrant
func (s *Service) InWhole(ctx context.Context, tx *sql.Tx, id int64) error { return nil }

//lock:key="whole:<id>"
func (s *Service) AroundBoth(ctx context.Context, id int64) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = tx.Commit() }()
	check(s.self.InWhole(ctx, tx, id)) // right: the method holds the lock until after the commit
	return s.self.PayIn(ctx, tx, id)   // mistake scope: the lock "given:<id>" is released before tx commits
}

//lock:key="whole:<from>"
func (s *Service) Move(ctx context.Context, from, to int64) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = tx.Commit() }()
	return s.self.InWhole(ctx, tx, to) //lockcheck:ignore order mistake scope: the lock "whole:<id>" is released before tx commits
}

func byDo(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	check(l.Do(ctx, nil, "by-hand", func(ctx context.Context) error { // mistake scope: the lock "by-hand" is released before tx commits
		_, err := tx.ExecContext(ctx, "UPDATE a")
		return err
	}))
	return tx.Commit()
}

func doAround(ctx context.Context, db *sql.DB, l *lock.Locker) error {
	return l.Do(ctx, nil, "by-hand", func(ctx context.Context) error { // right: around the transaction
		return run(ctx, db, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE a")
			return err
		})
	})
}

func deferred(ctx context.Context, db *sql.DB, l *lock.Locker) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Commit() // mistake scope: this commit runs after the lock is released
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	_, err = tx.ExecContext(ctx, "UPDATE a")
	return err
}

func deferredRightly(ctx context.Context, db *sql.DB, l *lock.Locker) (err error) {
	ctx, held, err := l.Acquire(ctx, nil, "k")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = tx.Commit() }() // right: before the lock is released
	_, err = tx.ExecContext(ctx, "UPDATE a")
	return err
}
