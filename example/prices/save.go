package prices

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

// save passes the fencing token, so that the store refuses the write of a holder whose lease is over.
func (l *List) save(ctx context.Context, prices map[int64]int64) error {
	token, _ := lock.Token(ctx)
	return l.store.Save(ctx, prices, token)
}
