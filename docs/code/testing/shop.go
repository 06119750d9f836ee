// Package testing is the code of docs/testing.md.
package testing

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// Shop counts what it has sold.
type Shop struct {
	Sold  int
	Store func(ctx context.Context) error
}

// Sell sells a piece.
//
//lock:key="shop:<id>" ttl=10s
func (s *Shop) Sell(ctx context.Context, id int64) error {
	if err := lock.Require(ctx, ShopSellKey(id)); err != nil {
		return err // called without its lock
	}
	if err := s.Store(ctx); err != nil {
		return err
	}
	if err := lock.Check(ctx); err != nil { // it took too long: nothing more is written
		return err
	}
	s.Sold++
	return nil
}
