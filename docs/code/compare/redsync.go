// Package compare is the code of the README's comparison.
package compare

import (
	"context"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// ByHand locks by hand.
type ByHand struct{ locks *redsync.Redsync }

// Pay pays an order.
func (s *ByHand) Pay(ctx context.Context, order int64) (err error) {
	m := s.locks.NewMutex("order:"+strconv.FormatInt(order, 10), redsync.WithExpiry(30*time.Second))
	if err := m.LockContext(ctx); err != nil {
		return err // polled every 50 to 250 ms; held by another, or Redis away: the same error
	}
	defer func() { // a ctx that has ended would not unlock
		unlock, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = m.UnlockContext(unlock)
	}()
	return pay(ctx, order) // longer than 30 s: two are inside, and nobody is told
}

func pay(ctx context.Context, _ int64) error { return ctx.Err() }
