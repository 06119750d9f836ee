// Package audit is the third: what it does under its lock leads to the first's again.
package audit

import (
	"context"

	"example.com/order/three/order"
)

type Service struct{ Orders *order.ServiceWithLock }

//lock:key="audit"
func (s *Service) Note(ctx context.Context, id int64) error {
	return s.Orders.Place(ctx, id, nil)
}
