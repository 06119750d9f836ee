package order

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrFenced says that the database has seen a newer holder of the lock, and refused the write of an
// older one.
var ErrFenced = errors.New("refused by the fence")

// Fence is a hold of a lock as the database sees it. Tokens rise with every hold of a key, so a
// lower token shows an older holder. With the zero token the fence is open: it refuses nothing.
type Fence struct {
	Key   string
	Token uint64
}

func (f Fence) open() bool { return f.Token == 0 }

// raise records the token as the highest of its key, or returns ErrFenced if a higher one is known.
// Tokens of all engines fit into 63 bits.
//
// The row of each key stays in the table. A shop that runs for years would delete the rows of ended
// sales together with the sales.
func (f Fence) raise(ctx context.Context, tx *sql.Tx) error {
	if f.open() {
		return nil
	}
	raised, err := tx.ExecContext(ctx, `
		INSERT INTO fences (key, token) VALUES (?1, ?2)
		ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE excluded.token >= fences.token`,
		f.Key, int64(f.Token))
	if err != nil {
		return fmt.Errorf("raise the fence of %s: %w", f.Key, err)
	}
	n, err := raised.RowsAffected()
	if err != nil || n == 1 {
		return err
	}
	return fmt.Errorf("%w: token %d of %s is not the newest", ErrFenced, f.Token, f.Key)
}
