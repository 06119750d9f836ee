package order

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver named "sqlite"
)

const schema = `
CREATE TABLE IF NOT EXISTS vouchers (
	id    INTEGER PRIMARY KEY,
	stock INTEGER NOT NULL, -- what was there when the sale began
	left  INTEGER NOT NULL  -- what is there now
);
CREATE TABLE IF NOT EXISTS orders (
	id         INTEGER PRIMARY KEY,
	voucher_id INTEGER NOT NULL REFERENCES vouchers (id),
	user_id    INTEGER NOT NULL,
	paid_by    TEXT    NOT NULL
);
-- Deliberately not UNIQUE: the unguarded sale shall show what it does.
CREATE INDEX IF NOT EXISTS orders_by_user ON orders (voucher_id, user_id);
-- The highest fencing token that was seen for each key.
CREATE TABLE IF NOT EXISTS fences (
	key   TEXT PRIMARY KEY,
	token INTEGER NOT NULL
) WITHOUT ROWID;
`

// Order is an order for one piece of a voucher, which is paid.
type Order struct {
	VoucherID, UserID int64
	By                Payment
}

// Store keeps vouchers and orders in one SQLite file, which any number of processes on one host may
// open.
type Store struct {
	// SQLite has one writer at a time. Writes have their own connection, so that reads don't queue
	// behind a write that waits for another process.
	writes *sql.DB
	reads  *sql.DB
}

// Open opens the database file at path, and creates it if it is absent.
func Open(ctx context.Context, path string) (*Store, error) {
	// A transaction that reads before it writes must take the write lock first. A deferred
	// transaction fails if another process has written in between, and no timeout prevents that.
	writes, err := sql.Open("sqlite", dsn(path, "_txlock=immediate", "_pragma=journal_mode(WAL)", "_pragma=synchronous(NORMAL)"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	writes.SetMaxOpenConns(1)
	if _, err := writes.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create the tables in %s: %w", path, err), writes.Close())
	}
	reads, err := sql.Open("sqlite", dsn(path, "_pragma=query_only(true)"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), writes.Close())
	}
	reads.SetMaxOpenConns(4)
	return &Store{writes: writes, reads: reads}, nil
}

func dsn(path string, options ...string) string {
	name := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	name.RawQuery = "_pragma=busy_timeout(20000)"
	for _, o := range options {
		name.RawQuery += "&" + o
	}
	return name.String()
}

// Close closes the database.
func (s *Store) Close() error {
	return errors.Join(s.reads.Close(), s.writes.Close())
}

// AddVoucher puts a voucher on sale.
func (s *Store) AddVoucher(ctx context.Context, voucherID int64, stock int) error {
	_, err := s.writes.ExecContext(ctx, `INSERT INTO vouchers (id, stock, left) VALUES (?, ?, ?)`, voucherID, stock, stock)
	if err != nil {
		return fmt.Errorf("add voucher %d: %w", voucherID, err)
	}
	return nil
}

// OrderOf returns the id of the user's first order of the voucher, or 0.
func (s *Store) OrderOf(ctx context.Context, f Fence, voucherID, userID int64) (orderID int64, err error) {
	err = s.read(ctx, f, &orderID,
		`SELECT coalesce(min(id), 0) FROM orders WHERE voucher_id = ? AND user_id = ?`, voucherID, userID)
	if err != nil {
		return 0, fmt.Errorf("look up the order of user %d: %w", userID, err)
	}
	return orderID, nil
}

// Stock returns how many pieces of the voucher are left.
func (s *Store) Stock(ctx context.Context, f Fence, voucherID int64) (left int, err error) {
	err = s.read(ctx, f, &left, `SELECT left FROM vouchers WHERE id = ?`, voucherID)
	if err != nil {
		return 0, fmt.Errorf("read the stock of voucher %d: %w", voucherID, err)
	}
	return left, nil
}

// Book writes the order and the stock that is left after it. It writes both or neither, and neither
// if a fence refuses.
func (s *Store) Book(ctx context.Context, o Order, left int, fences ...Fence) (orderID int64, err error) {
	err = s.write(ctx, fences, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE vouchers SET left = ? WHERE id = ?`, left, o.VoucherID); err != nil {
			return err
		}
		added, err := tx.ExecContext(ctx, `INSERT INTO orders (voucher_id, user_id, paid_by) VALUES (?, ?, ?)`,
			o.VoucherID, o.UserID, string(o.By))
		if err != nil {
			return err
		}
		orderID, err = added.LastInsertId()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("book the order of user %d: %w", o.UserID, err)
	}
	return orderID, nil
}

// Totals are the numbers in the database for a voucher.
type Totals struct {
	Stock  int // pieces that were put on sale
	Left   int // pieces that are left, according to the voucher
	Orders int // orders that were written
	Buyers int // users who ordered
}

// Totals counts the orders of a voucher.
func (s *Store) Totals(ctx context.Context, voucherID int64) (t Totals, err error) {
	err = s.reads.QueryRowContext(ctx, `
		SELECT v.stock, v.left, count(o.id), count(DISTINCT o.user_id)
		FROM vouchers v LEFT JOIN orders o ON o.voucher_id = v.id
		WHERE v.id = ? GROUP BY v.id`, voucherID).Scan(&t.Stock, &t.Left, &t.Orders, &t.Buyers)
	if err != nil {
		return Totals{}, fmt.Errorf("count the orders of voucher %d: %w", voucherID, err)
	}
	return t, nil
}

// read runs a query with one row and one column. Under a lock it first raises the fence, in the
// same transaction. So a process that read earlier, under a lock that has ended since, can no
// longer write what it computed from its reading.
func (s *Store) read(ctx context.Context, f Fence, dest any, query string, args ...any) error {
	if f.open() {
		return s.reads.QueryRowContext(ctx, query, args...).Scan(dest)
	}
	return s.write(ctx, []Fence{f}, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, query, args...).Scan(dest)
	})
}

// write runs f in one transaction, if no fence refuses it.
func (s *Store) write(ctx context.Context, fences []Fence, f func(*sql.Tx) error) error {
	tx, err := s.writes.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back; before it the first error counts
	for _, fence := range fences {
		if err := fence.raise(ctx, tx); err != nil {
			return err
		}
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
