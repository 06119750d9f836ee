package prices

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

// save has the store refuse what a writer that was paused past its lease would write.
func (l *List) save(ctx context.Context, prices map[int64]int64) error {
	token, _ := lock.Token(ctx)
	return l.store.Save(ctx, prices, token)
}
