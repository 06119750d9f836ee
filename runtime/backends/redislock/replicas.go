package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// replicaTimeout is what Redisson waits for its replicas.
const replicaTimeout = time.Second

// copies is what a call that takes a lock asks of replicas.
type copies struct {
	want   int
	within time.Duration
}

// copied returns an error if fewer replicas took the lock than c, which was answered, asks for.
func (c *call) copied() error {
	if c.copies.want == 0 {
		return nil
	}
	got, err := c.waited.Result()
	switch {
	case err != nil:
		return fmt.Errorf("the server can't say which replicas took the lock: %w", err)
	case int(got) < c.copies.want:
		return fmt.Errorf("%d of the %d replicas that redislock.Options.Replicas asks for took the lock within %v", got, c.copies.want, c.copies.within)
	}
	return nil
}

// confirm undoes an acquisition that too few replicas took.
func (b *Backend) confirm(ctx context.Context, a *driver.Acquisition, c *call) error {
	err := c.copied()
	if err == nil {
		return nil
	}
	if undo := b.Undo(ctx, a); undo != nil {
		return fmt.Errorf("%w: %w (%w)", driver.ErrIndeterminate, err, undo)
	}
	return err
}

// copies returns what the Backend's acquires ask of replicas.
func (b *Backend) copies() copies {
	if b.options.Replicas <= 0 {
		return copies{} // nor is there anything to wait longer for
	}
	within := engine.DurationOr(b.options.ReplicaTimeout, replicaTimeout)
	return copies{want: b.options.Replicas, within: max(within, time.Millisecond)} // 0 would be: for ever
}
