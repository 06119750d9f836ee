// Package tutorial is the service of docs/tutorial.md.
package tutorial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// ErrSoldOut says that no piece is left.
var ErrSoldOut = errors.New("sold out")

// Shop sells what is in the table stock.
type Shop struct{ DB *sql.DB }

// Buy sells one piece of the item and returns how many are left.
//
//lock:key="shop:item:<id>" ttl=10s wait=2s
func (s *Shop) Buy(ctx context.Context, id int64) (left int, err error) {
	if err := s.DB.QueryRowContext(ctx, "SELECT pieces FROM stock WHERE item = $1", id).Scan(&left); err != nil {
		return 0, err
	}
	if left == 0 {
		return 0, ErrSoldOut
	}
	token, _ := lock.Token(ctx)
	sold, err := s.DB.ExecContext(ctx,
		"UPDATE stock SET pieces = $1, token = $2 WHERE item = $3 AND token <= $2", left-1, int64(token), id)
	if err != nil {
		return 0, err
	}
	if n, err := sold.RowsAffected(); err != nil || n == 0 {
		return 0, fmt.Errorf("a later holder of the lock has sold: %w", err)
	}
	return left - 1, nil
}
