package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	lock "github.com/lockgen/lockgen/runtime"
)

// ErrStale is the error of a write with an older token than that of a later holder of the lock.
// Nothing was written.
var ErrStale = errors.New("fence: the resource has seen a later holder of the lock")

// Token returns the fencing token of the lock on key that ctx owns, as the signed number that
// databases store. Tokens of all engines fit into 63 bits. The error wraps [lock.ErrNotHeld] if
// ctx is under no lock on key, and [lock.ErrLost] if that lock was lost. It does no I/O.
func Token(ctx context.Context, key string) (int64, error) {
	if err := lock.Require(ctx, key); err != nil {
		return 0, err
	}
	token, ok := lock.TokenOf(ctx, key)
	if !ok || token > math.MaxInt64 {
		return 0, fmt.Errorf("fence: the lock on %q has no token that fits into 63 bits", key)
	}
	return int64(token), nil
}

// Changed returns err, or an error that wraps [ErrStale] if the statement changed no row. It
// is for an UPDATE or a DELETE of rows that have the token in a column of their own:
//
//	token, err := fence.Token(ctx, key)
//	…
//	err = fence.Changed(db.ExecContext(ctx,
//		"UPDATE item SET stock = $1, token = $2 WHERE id = $3 AND token <= $2", stock, token, id))
//
// It also works with a version that each write increments, "… SET version = version + 1 WHERE id = $1 AND
// version = $2". A row that does not exist is reported as stale too. MySQL and MariaDB count a row that
// already has the new values as unchanged, so connect with clientFoundRows=true there.
func Changed(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: the driver does not say how many rows were changed: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w: the statement changed no row", ErrStale)
	}
	return nil
}

func stale(key string, token, newest int64) error {
	return fmt.Errorf("%w: token %d of %q, and %d was seen", ErrStale, token, key, newest)
}
