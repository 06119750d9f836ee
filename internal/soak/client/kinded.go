package client

import (
	"context"

	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// kindedBackend is a backend with all kinds of locks that can keep an idle mutex.
type kindedBackend interface {
	driver.Kinded
	driver.Caller
	driver.Viewer
	driver.Recaller
}

// kindedWitness is a witness of a backend with all kinds of locks.
type kindedWitness struct {
	*witness
	kindedBackend
}

// sharedKindedWitness is a kindedWitness of a backend that counts its Lockers.
type sharedKindedWitness struct {
	*kindedWitness
	driver.Shared
}

// kindedLease is the lease of a lock other than a mutex.
type kindedLease struct{ *lease }

// Downgrade implements [driver.Downgrader].
func (l *kindedLease) Downgrade(ctx context.Context, last uint64) error {
	r := history.Record{Op: history.Down, Key: l.key, Lease: l.id, Token: last}
	return l.free(r, func() error { return l.Lease.(driver.Downgrader).Downgrade(ctx, last) })
}

// Complete implements [driver.Completer].
func (l *kindedLease) Complete(ctx context.Context, last uint64) error {
	r := history.Record{Op: history.Free, Key: l.key, Lease: l.id, Token: last, Tick: l.tick, Completes: true}
	return l.free(r, func() error { return l.Lease.(driver.Completer).Complete(ctx, last) })
}
