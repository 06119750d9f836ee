package compare

import "context"

//go:generate go tool lockgen

type payments struct{}

// Pay pays an order.
//
//lock:key="order:<order>" ttl=30s
func (s *payments) Pay(ctx context.Context, order int64) (err error) {
	return pay(ctx, order) // renewed; ctx ends if the lock is lost; released under any ctx; waiters are told
}
