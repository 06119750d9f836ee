// Package bsm is a service before and after docs/migration.md.
package bsm

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

// Before is a service on bsm/redislock.
type Before struct{ locks *redislock.Client }

// Pay pays an order.
func (s *Before) Pay(ctx context.Context, order string) error {
	l, err := s.locks.Obtain(ctx, "order:"+order, 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	defer l.Release(ctx) // not renewed; under a ctx that has ended it does not release
	return pay(ctx, order)
}

func pay(ctx context.Context, order string) error { return ctx.Err() }
