package redislock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// noteKey is where the note of this name is: a string.
func noteKey(name string) string { return "lockgen:" + strings.Replace(name, "/", ":", 1) }

// PutNote implements [driver.Noter].
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	return b.put(ctx, noteKey(name), text, ttl)
}

// put sets text at key for ttl, by one SET. With a ttl of 0 or less it removes the key.
func (b *Backend) put(ctx context.Context, key, text string, ttl time.Duration) error {
	_, err := b.note(ctx, func() (string, error) {
		if ttl <= 0 {
			return "", b.client.PExpire(ctx, key, 0).Err() // DEL would need one more right
		}
		return "", b.client.Set(ctx, key, text, ttl).Err()
	})
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, func() (string, error) { return b.client.Get(ctx, noteKey(name)).Result() })
}

// note returns the result of call.
func (b *Backend) note(ctx context.Context, call func() (string, error)) (string, error) {
	if b.unusable != nil {
		return "", b.unusable
	}
	answer, failed := within(ctx, call)
	if failed != nil && !errors.Is(failed, redis.Nil) {
		return "", wrapConflict(failed)
	}
	return answer, nil
}

// within returns what f does, or ctx's error if that ends before: go-redis looks at ctx only
// before it waits for an answer.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
