package failover

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at the engine that grants. A switch leaves the notes behind.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	n, err := b.noter(ctx)
	if err != nil {
		return err
	}
	return n.PutNote(ctx, name, text, ttl)
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	n, err := b.noter(ctx)
	if err != nil {
		return "", err
	}
	return n.Note(ctx, name)
}

func (b *Backend) noter(ctx context.Context) (driver.Noter, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	e, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := e.member.Backend.(driver.Noter)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return n, nil
}
