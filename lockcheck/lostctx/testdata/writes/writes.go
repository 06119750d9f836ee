package writes

import (
	"context"
	"database/sql"
	"net/http"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	self *ServiceWithLock
	db   *sql.DB
	log  *journal
}

type journal struct{}

func (*journal) ExecContext(ctx context.Context, line string) error { return nil }

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, r *http.Request, id int64) error {
	if _, err := s.db.ExecContext(context.Background(), "UPDATE orders"); err != nil { // want `context.Background\(\) owns no lock: ExecContext goes on when "order:<id>" is lost; pass the ctx that the method got`
		return err
	}
	if _, err := s.db.ExecContext(r.Context(), "UPDATE orders"); err != nil { // want `r.Context\(\) owns no lock`
		return err
	}
	tx, err := s.db.BeginTx(context.TODO(), nil) // want `context.TODO\(\) owns no lock`
	if err != nil {
		return err
	}
	child, cancel := context.WithCancel(r.Context())
	defer cancel()
	if _, err := tx.ExecContext(child, "UPDATE orders"); err != nil { // want `r.Context\(\) owns no lock`
		return err
	}
	if err := s.log.ExecContext(context.Background(), "paid"); err != nil { // no database
		return err
	}
	rows, err := s.db.QueryContext(context.Background(), "SELECT") // reads
	if err != nil {
		return err
	}
	return rows.Close()
}

//lock:key="order:<id>" reentrant
func (s *Service) Again(ctx context.Context, r *http.Request, id int64) error {
	return s.self.Again(r.Context(), r, id) // want `r.Context\(\) does not own "order:<id>"`
}

// The context of the lock, also by way of the request; clean-up; a failure that is
// noted; a write that a token guards.
//
//lock:key="order:<id>"
func (s *Service) Rightly(ctx context.Context, r *http.Request, id int64) error {
	defer func() { _, _ = s.db.ExecContext(context.Background(), "DELETE FROM drafts") }()
	r = r.WithContext(ctx)
	if _, err := s.db.ExecContext(r.Context(), "UPDATE orders"); err != nil {
		_, _ = s.db.ExecContext(context.Background(), "UPDATE orders SET failed = 1")
		return err
	}
	if ctx.Err() != nil {
		_, _ = s.db.ExecContext(context.Background(), "UPDATE orders SET failed = 1")
	}
	_, err := s.db.ExecContext(ctx, "UPDATE orders")
	return err
}

//lock:key="order:<id>"
func (s *Service) Fenced(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	_, err := s.db.ExecContext(context.Background(), "UPDATE orders SET token = ?", token)
	return err
}

// No lock, no report.
func (s *Service) Free(ctx context.Context, r *http.Request) error {
	_, err := s.db.ExecContext(r.Context(), "UPDATE orders")
	return err
}
