package sharded

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at the member that has a key of the note's name.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	n, err := b.noter(name)
	if err != nil {
		return err
	}
	return n.PutNote(ctx, name, text, ttl)
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	n, err := b.noter(name)
	if err != nil {
		return "", err
	}
	return n.Note(ctx, name)
}

func (b *Backend) noter(name string) (driver.Noter, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	_, key, _ := strings.Cut(name, "/")
	n, ok := b.members[b.Owner(key)].Backend.(driver.Noter)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return n, nil
}
