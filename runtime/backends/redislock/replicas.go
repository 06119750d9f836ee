package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// replicaTimeout is what Redisson waits for its replicas.
const replicaTimeout = time.Second

// copies is what a call that takes a lock asks of replicas, and what it got.
type copies struct {
	want   int
	within time.Duration

	answer *redis.IntCmd
	got    int
	err    error // answered to the question
}

// confirm undoes an acquisition that too few replicas took.
func (b *Backend) confirm(ctx context.Context, a *driver.Acquisition, c copies) error {
	if c.got >= c.want {
		return nil
	}
	err := fmt.Errorf("%d of the %d replicas that redislock.Options.Replicas asks for took the lock within %v", c.got, c.want, c.within)
	if c.err != nil {
		err = fmt.Errorf("the server can't say which replicas took the lock: %w", c.err)
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
	within := b.options.ReplicaTimeout
	if within <= 0 {
		within = replicaTimeout
	}
	return copies{want: b.options.Replicas, within: max(within, time.Millisecond)} // 0 would be: for ever
}
