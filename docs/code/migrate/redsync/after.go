package redsync

import "context"

//go:generate go tool lockgen

// After is the service on lockgen.
type After struct{}

// Pay pays an order.
//
//lock:key="order:<order>" ttl=30s
func (s *After) Pay(ctx context.Context, order string) error {
	return pay(ctx, order)
}
