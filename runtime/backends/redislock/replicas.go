package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// replicaTimeout is what Redisson waits for its replicas.
const replicaTimeout = time.Second

// copies is what a call that takes a lock asks of replicas, and what it got.
type copies struct {
	want   int
	within time.Duration

	got int
	err error // answered to the question
}

// copied has the server wait until replicas have what calls, which were sent on
// s's connection, have written: one question for all of them. Those that took
// nothing are not asked about. WAIT is about what its own connection wrote.
func (s *link) copied(calls []*call) error {
	var taken []*call
	for _, c := range calls {
		if c.err == nil && c.copies.want > 0 && c.reply.kind == ':' && c.reply.number > 0 {
			taken = append(taken, c)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	ask := taken[0].copies
	s.until = time.Now().Add(s.options.ReadTimeout + ask.within)
	s.out = appendCommand(s.out[:0], "wait", strconv.Itoa(ask.want), strconv.FormatInt(ask.within.Milliseconds(), 10))
	if err := s.flush(); err != nil {
		return err
	}
	got, err := s.reply()
	if err != nil {
		return err
	}
	for _, c := range taken {
		c.copies.got, c.copies.err = int(got.number), got.err()
	}
	return nil
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
