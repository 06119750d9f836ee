package redislock

import (
	"context"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
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
// nothing are not asked about.
func (s *link) copied(ctx context.Context, calls []*call) error {
	var taken []*call
	for _, c := range calls {
		if state, _, _ := pair(c.reply); c.err == nil && c.copies.want > 0 && state == 1 {
			taken = append(taken, c)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	ask := taken[0].copies
	ctx, cancel := context.WithTimeout(ctx, ask.within+s.client.Options().ReadTimeout)
	defer cancel()
	dialed := s.dialed()
	got, err := s.client.Wait(ctx, ask.want, ask.within).Result()
	if s.dialed() != dialed {
		// WAIT is about what its own connection wrote: nothing, on a new one.
		err = fmt.Errorf("%w: the connection was lost before its replicas answered", errNoAnswer)
	}
	if err != nil && !isAnswer(err) {
		return fmt.Errorf("%w: %v", errNoAnswer, err) //nolint:errorlint // a WAIT that was not sent says nothing of the lock
	}
	for _, c := range taken {
		c.copies.got, c.copies.err = int(got), err
	}
	return nil
}

// confirm undoes an acquisition that too few replicas took.
func (b *Backend) confirm(ctx context.Context, a *lock.Acquisition, c copies) error {
	if c.got >= c.want {
		return nil
	}
	err := fmt.Errorf("%d of the %d replicas that redislock.Options.Replicas asks for took the lock within %v", c.got, c.want, c.within)
	if c.err != nil {
		err = fmt.Errorf("the server can't say which replicas took the lock: %w", c.err)
	}
	if undo := b.Undo(ctx, a); undo != nil {
		return fmt.Errorf("%w: %w (%w)", lock.ErrIndeterminate, err, undo)
	}
	return err
}

// copies returns what the Backend's acquires ask of replicas.
func (b *Backend) copies() copies {
	within := b.options.ReplicaTimeout
	if within <= 0 {
		within = replicaTimeout
	}
	return copies{want: b.options.Replicas, within: max(within, time.Millisecond)} // 0 would be: for ever
}
