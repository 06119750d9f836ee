// Package flash sells one item from a database to many buyers at once, with a transaction for
// each order, or with one for all buyers that wait.
package flash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// Shop sells the items in its database. Its methods may be called from any number of goroutines,
// under their locks.
type Shop struct {
	// Also is another statement in each transaction, unless it is empty. With "SELECT
	// pg_sleep(0.001)" a transaction takes a millisecond, even in a database on this machine that
	// waits for no disk.
	Also string

	db     *sql.DB
	commit func(*sql.Tx) error // tx.Commit, except in tests
}

// NewShop returns a Shop on db, which Migrate has prepared.
func NewShop(db *sql.DB) *Shop { return &Shop{db: db, commit: (*sql.Tx).Commit} }

// Migrate creates the tables unless they exist.
func (s *Shop) Migrate(ctx context.Context) error {
	for _, ddl := range []string{
		"CREATE TABLE IF NOT EXISTS flash_items (item BIGINT PRIMARY KEY, stock BIGINT NOT NULL, token BIGINT NOT NULL)",
		"CREATE TABLE IF NOT EXISTS flash_orders (item BIGINT NOT NULL, buyer BIGINT NOT NULL, PRIMARY KEY (item, buyer))",
	} {
		if _, err := s.db.ExecContext(ctx, ddl); err != nil {
			return err
		}
	}
	return nil
}

// Offer puts pieces of an item up for sale. They replace an earlier offer.
func (s *Shop) Offer(ctx context.Context, item, stock int64) error {
	for _, text := range []string{
		"DELETE FROM flash_orders WHERE item = %[1]d", "DELETE FROM flash_items WHERE item = %[1]d",
		"INSERT INTO flash_items (item, stock, token) VALUES (%[1]d, %[2]d, 0)",
	} {
		if _, err := s.db.ExecContext(ctx, fmt.Sprintf(text+" -- %[2]d", item, stock)); err != nil {
			return err
		}
	}
	return nil
}

// errOverruled says that a holder with a newer token has written, so this lock was lost.
var errOverruled = errors.New("a newer holder of the lock has sold meanwhile")

// BuyAlone sells one piece in a transaction of its own. It reports whether there was one.
//
//lock:key="flash:<item>" ttl=10s
func (s *Shop) BuyAlone(ctx context.Context, item, buyer int64) (bool, error) {
	sold, err := s.sell(ctx, item, []int64{buyer})
	return err == nil && sold[0], err
}

// Buy sells a piece to each of buyers, as long as there is one, in one transaction: all of
// it is in the database afterwards, or nothing. The wrapper's BuyOne is what a buyer calls.
//
//lock:key="flash:<item>" ttl=10s merge=64
func (s *Shop) Buy(ctx context.Context, item int64, buyers []int64) ([]bool, error) {
	return s.sell(ctx, item, buyers)
}

func (s *Shop) sell(ctx context.Context, item int64, buyers []int64) (sold []bool, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // it does nothing after a commit
	var stock int64
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT stock FROM flash_items WHERE item = %d", item)).Scan(&stock); err != nil {
		return nil, fmt.Errorf("item %d: %w", item, err)
	}
	n := min(int(stock), len(buyers))
	sold = make([]bool, len(buyers))
	if n == 0 {
		return sold, nil
	}
	token, _ := lock.Token(ctx)
	result, err := tx.ExecContext(ctx, fmt.Sprintf(
		"UPDATE flash_items SET stock = stock - %d, token = %d WHERE item = %d AND token <= %[2]d AND stock >= %[1]d", n, token, item))
	if err != nil {
		return nil, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == 0 {
		return nil, errors.Join(errOverruled, err)
	}
	var rows strings.Builder
	for i, buyer := range buyers[:n] {
		sold[i] = true
		fmt.Fprintf(&rows, "%s(%d, %d)", map[bool]string{true: ", "}[i > 0], item, buyer)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO flash_orders (item, buyer) VALUES "+rows.String()); err != nil {
		return nil, err
	}
	if s.Also != "" {
		if _, err := tx.ExecContext(ctx, s.Also); err != nil {
			return nil, err
		}
	}
	return sold, s.commit(tx)
}
