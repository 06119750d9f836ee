package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// registeredKey is where a process has what [driver.Process] says of it, in JSON.
func registeredKey(id string) string { return "lockgen:process:" + id }

// Register implements [driver.Registrar] by one SET that expires.
func (b *Backend) Register(ctx context.Context, p *driver.Process, ttl time.Duration) error {
	if b.unusable != nil {
		return b.unusable
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return b.keep(ctx, registeredKey(p.ID), string(text), ttl)
}

// keep has the server keep text at name for ttl; with a ttl of 0 it takes it away.
func (b *Backend) keep(ctx context.Context, name, text string, ttl time.Duration) error {
	done := make(chan error, 1)
	go func() { // go-redis looks at ctx only before it waits for an answer
		if ttl <= 0 {
			done <- b.own.PExpire(ctx, name, 0).Err() // DEL would take a right more
			return
		}
		done <- b.own.Set(ctx, name, text, ttl).Err()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Process implements [driver.Registrar].
func (b *Backend) Process(ctx context.Context, id string) (*driver.Process, error) {
	if b.unusable != nil {
		return nil, b.unusable
	}
	text, err := b.own.Get(ctx, registeredKey(id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, explained(err)
	}
	p := &driver.Process{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", driver.ErrConflict, registeredKey(id), err)
	}
	return p, nil
}
