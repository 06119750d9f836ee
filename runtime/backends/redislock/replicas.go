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

// replicas is what a call that takes a lock asks of replicas.
type replicas struct {
	want   int
	within time.Duration
}

// checkReplicas returns an error if fewer replicas took the lock than c, which was answered, asks for.
func (c *call) checkReplicas() error {
	if c.replicas.want == 0 {
		return nil
	}
	got, err := c.waited.Result()
	switch {
	case err != nil:
		return fmt.Errorf("the server can't say which replicas took the lock: %w", err)
	case int(got) < c.replicas.want:
		return fmt.Errorf("%d of the %d replicas that redislock.Options.Replicas asks for took the lock within %v", got, c.replicas.want, c.replicas.within)
	}
	return nil
}

// requireReplicas undoes an acquisition that too few replicas took.
func (b *Backend) requireReplicas(ctx context.Context, a *driver.Acquisition, c *call) error {
	err := c.checkReplicas()
	if err == nil {
		return nil
	}
	if undo := b.Undo(ctx, a); undo != nil {
		return fmt.Errorf("%w: %w (%w)", driver.ErrIndeterminate, err, undo)
	}
	return err
}

// replicas returns what the Backend's acquires ask of replicas.
func (b *Backend) replicas() replicas {
	if b.options.Replicas <= 0 {
		return replicas{} // within is 0 too: timeouts are no longer for it
	}
	within := engine.DurationOr(b.options.ReplicaTimeout, replicaTimeout)
	return replicas{want: b.options.Replicas, within: max(within, time.Millisecond)} // WAIT takes 0 as for ever
}
