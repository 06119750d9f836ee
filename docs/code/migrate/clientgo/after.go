package clientgo

import "context"

//go:generate go tool lockgen

// After is the service on lockgen.
type After struct{}

// Run has one process of all sync until ctx ends.
//
//lock:key="shop:sync" ttl=15s leader
func (a *After) Run(ctx context.Context) error {
	return sync(ctx)
}
