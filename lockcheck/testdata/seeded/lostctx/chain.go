package lostctx

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

type Shop struct {
	self *ShopWithLock
	db   *sql.DB
	ctx  context.Context
	log  *journal
}

type journal struct{}

func (*journal) ExecContext(ctx context.Context, line string) error { return nil }

var background = context.Background()

//lock:key="shop:<id>" reentrant
func (s *Shop) Book(ctx context.Context, id int64) error { return nil }

//lock:key="shop:<id>" reentrant try
func (s *Shop) Try(ctx context.Context, id int64) error { return nil }

//lock:key="stock:<id>"
func (s *Shop) Other(ctx context.Context, id int64) error { return nil }

func check(err error) {}

//lock:key="shop:<id>" reentrant
func (s *Shop) Again(ctx context.Context, r *http.Request, id, other int64) error {
	check(s.self.Book(context.Background(), id)) // mistake lostctx: context.Background() does not own "shop:<id>"
	check(s.self.Book(context.TODO(), id))       // mistake lostctx: context.TODO() does not own
	check(s.self.Book(s.ctx, id))                // mistake lostctx: the field s.ctx does not own
	check(s.self.Book(background, id))           // mistake lostctx: the variable background does not own
	check(s.self.Book(lock.Detach(ctx), id))     // mistake lostctx: lock.Detach(ctx) does not own
	check(s.self.Book(r.Context(), id))          // mistake lostctx: r.Context() does not own
	timeout, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	check(s.self.Book(timeout, id))                 // mistake lostctx: context.Background() does not own
	check(s.deep(ctx, id))                          // right: what it calls is reported there
	check(s.self.Book(ctx, id))                     // right: re-enters
	check(s.self.Book(context.Background(), other)) // right: another value, another lock
	check(s.self.Try(context.Background(), id))     // right: never waits
	check(s.self.Other(context.Background(), id))   // right: another lock
	mine, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	return s.self.Book(mine, id) // right: is made from the lock's
}

func (s *Shop) deep(ctx context.Context, id int64) error {
	return s.self.Book(context.Background(), id) // mistake lostctx: context.Background() does not own
}

//lock:key="order:<id>"
func (s *Shop) Writes(ctx context.Context, r *http.Request, id int64) error {
	_, err := s.db.ExecContext(context.Background(), "UPDATE a") // mistake lostctx: context.Background() owns no lock: ExecContext goes on
	check(err)
	_, err = s.db.ExecContext(r.Context(), "UPDATE a") // mistake lostctx: r.Context() owns no lock
	check(err)
	tx, err := s.db.BeginTx(context.TODO(), nil) // mistake lostctx: context.TODO() owns no lock
	check(err)
	child, cancel := context.WithCancel(r.Context())
	defer cancel()
	_, err = tx.ExecContext(child, "UPDATE a") // mistake lostctx: r.Context() owns no lock
	check(err)
	_, err = s.db.Exec("UPDATE a") // mistake lostctx: s.db.Exec takes no context
	check(err)
	mine, err := s.db.BeginTx(ctx, nil) // right: the lock's
	check(err)
	_, err = mine.ExecContext(ctx, "UPDATE a") // right: the lock's
	check(err)
	rows, err := s.db.QueryContext(context.Background(), "SELECT 1") // right: reads
	check(err)
	check(rows.Close())
	check(s.log.ExecContext(context.Background(), "paid"))      // right: no database
	_, err = mine.ExecContext(context.Background(), "UPDATE a") // right: the transaction ends with its context
	check(err)
	_, err = mine.Exec("UPDATE a") // right: the transaction ends with its context
	return err
}

//lock:key="order:<id>"
func (s *Shop) Requests(ctx context.Context, r *http.Request, id int64) error {
	_, err := s.db.ExecContext(r.Context(), "UPDATE a") // unseen lostctx: a request that gets another context is not followed line by line
	check(err)
	r = r.WithContext(ctx)
	_, err = s.db.ExecContext(r.Context(), "UPDATE a") // right: the request has the lock's
	return err
}

//lock:key="order:<id>"
func (s *Shop) Begins(ctx context.Context, id int64) error {
	tx, err := s.db.Begin() // mistake lostctx: s.db.Begin takes no context
	check(err)
	rows, err := s.db.Query("SELECT 1") // right: reads
	check(err)
	check(rows.Close())
	if err := tx.Commit(); err != nil {
		_, err = s.db.Exec("UPDATE failed") // right: notes a failure
		return err
	}
	return nil
}

//lock:key="order:<id>"
func (s *Shop) Fails(ctx context.Context, id int64) error {
	defer func() { _, _ = s.db.ExecContext(context.Background(), "DELETE FROM drafts") }() // right: clean-up
	if _, err := s.db.ExecContext(ctx, "UPDATE a"); err != nil {                           // right: the lock's
		_, _ = s.db.ExecContext(context.Background(), "UPDATE failed") // right: notes a failure
		return err
	}
	return nil
}

//lock:key="order:<id>"
func (s *Shop) Guarded(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	_, err := s.db.ExecContext(context.Background(), "UPDATE a SET token = ?", token) // right: a token guards the write
	return err
}

// Free has no lock.
func (s *Shop) Free(ctx context.Context, r *http.Request) error {
	_, err := s.db.ExecContext(r.Context(), "UPDATE a") // right: no lock
	return err
}
