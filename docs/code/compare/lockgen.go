package compare

import "context"

//go:generate go tool lockgen

// Payments is the same with lockgen.
type Payments struct{}

// Pay pays an order.
//
//lock:key="order:<order>" ttl=30s
func (s *Payments) Pay(ctx context.Context, order int64) (err error) {
	return pay(ctx, order) // renewed; ctx ends if the lock is lost; released under any ctx; waiters are told
}
