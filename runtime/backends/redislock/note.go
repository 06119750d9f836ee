package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// noteKey is where the note on key is: a string, in the slot of the lock.
func noteKey(key string) (string, error) {
	tag, err := tagged(key)
	return "lockgen:note:" + tag, err
}

// PutNote implements [driver.Noter] by one SET that expires.
func (b *Backend) PutNote(ctx context.Context, key, text string, ttl time.Duration) error {
	name, err := noteKey(key)
	if err = errors.Join(b.unusable, err); err != nil {
		return err
	}
	return b.keep(ctx, name, text, ttl)
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, key string) (string, error) {
	name, err := noteKey(key)
	if err = errors.Join(b.unusable, err); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := b.own.Get(ctx, name).Result()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		done <- answer{text, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return "", explained(a.err)
		}
		return a.text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
