// Package redisson is the Go side of a service of docs/migration.md whose Java side is on
// Redisson.
package redisson

import "context"

//go:generate go tool lockgen

// Orders is the service.
type Orders struct {
	charge func(ctx context.Context, order int64) error
}

// Pay pays an order.
//
//lock:key="order:<order>" ttl=30s
func (o *Orders) Pay(ctx context.Context, order int64) error {
	return o.charge(ctx, order)
}
