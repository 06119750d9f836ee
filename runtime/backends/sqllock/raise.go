package sqllock

import (
	"context"
	"fmt"

	"github.com/lockgen/lockgen/runtime/driver"
)

// RaiseToken implements [driver.TokenRaiser]. The row keeps the token until the clock is past it.
func (b *Backend) RaiseToken(ctx context.Context, held driver.Lease, least uint64) error {
	if s, ok := held.(*sessionLease); ok {
		held = s.Lease
	}
	l, ok := held.(*lease)
	if !ok || l.backend != b {
		return fmt.Errorf("%w: sqllock has no tokens to raise of a %T", driver.ErrInvalid, held)
	}
	v := values{"key0": []byte(l.key), "id0": l.id, "token": int64(least)}
	r, _, err := b.run(ctx, b.renewals, b.sql.raise.with(v))
	if err != nil || r.affected > 0 {
		return err
	}
	// It is not this owner's, or, at MySQL, the token was high enough.
	ours, _, err := b.run(ctx, b.renewals, b.sql.batched("owned.sql", 1).with(v))
	if err == nil && len(ours.rows) == 0 {
		err = driver.ErrLost
	}
	return err
}
