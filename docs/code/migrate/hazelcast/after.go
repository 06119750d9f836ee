// Package hazelcast is a service of docs/migration.md that was one on Hazelcast's FencedLock.
package hazelcast

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// Accounts is the service.
type Accounts struct {
	store func(ctx context.Context, fence uint64, id int64) error // refuses an older fence
}

// Close closes an account.
//
//lock:key="account:<id>" ttl=30s
func (a *Accounts) Close(ctx context.Context, id int64) error {
	fence, _ := lock.Token(ctx)
	return a.store(ctx, fence, id)
}
