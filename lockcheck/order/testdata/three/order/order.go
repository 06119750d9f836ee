// Package order is the second: it calls package stock.
package order

import (
	"context"

	"example.com/order/three/stock"
)

type Service struct{ Stock *stock.ServiceWithLock }

//lock:key="order:<id>"
func (s *Service) Place(ctx context.Context, id int64, skus []string) error {
	for _, sku := range skus {
		if err := s.Stock.Reserve(ctx, sku, id); err != nil {
			return err
		}
	}
	return nil
}
