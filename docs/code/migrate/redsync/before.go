// Package redsync is a service before and after docs/migration.md.
package redsync

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// Before is a service on redsync.
type Before struct{ locks *redsync.Redsync }

// Pay pays an order.
func (s *Before) Pay(ctx context.Context, order string) error {
	m := s.locks.NewMutex("order:"+order, redsync.WithExpiry(30*time.Second))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	defer m.UnlockContext(ctx) // not renewed; under a ctx that has ended it does not unlock
	return pay(ctx, order)
}

func pay(ctx context.Context, order string) error { return ctx.Err() }
