package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// batchSlots is how many batches are under way to a server at a time. Over a
	// network, a call waits for the round trip of another batch only when so many are;
	// beside a busy server, more would only make batches smaller. bench/README.md
	// has the figures.
	batchSlots = 8
	// batchLimit is how many calls a batch carries at most.
	batchLimit = 128

	// While round trips take less than promptLimit, a call is sent directly, by its caller's own
	// goroutine: to give it to another and to get it back wakes two threads, which costs a third
	// of the client's CPU. Nothing ends a direct call when its caller's context does, so it takes
	// directLimit at most.
	promptLimit = 10 * time.Millisecond
	directLimit = 50 * time.Millisecond
)

// batcher sends the calls of concurrent goroutines to one server. A call that finds
// a slot free is sent at once, directly if the server is prompt and has a connection free;
// those that come while all are in use go together in the next batch.
type batcher struct {
	client  *redis.Client // each new connection checks that the server is fit for locks, except a standby's
	standby *batcher      // for renewals, and for releases at a server that is unfit for locks; nil in a standby
	warmed  atomic.Bool   // standby has had a connection, or is dialing one
	prompt  atomic.Bool   // the last round trip was answered within promptLimit

	mu      sync.Mutex
	waiting []*call
	slots   int // in use
	conns   int // the most slots that were in use when a batch was done: there are as many connections

	*server

	used     time.Time   // when a call last asked for it, in a Cluster; under the router's mutex
	outage   outage      // likewise
	inOutage atomic.Bool // there is an outage
}

// forCall returns the batcher for c: b, or its standby for a renewal.
func (b *batcher) forCall(c *call) *batcher {
	if c.renews {
		return b.standby
	}
	return b
}

// do runs c. If it returns nil, c has its reply. It returns when ctx ends, or within directLimit
// after that: with errNotSent if c was not sent and will not be, else with errNoAnswer. If the
// server was prompt and falls silent, do returns errNoAnswer after directLimit.
func (b *batcher) do(ctx context.Context, c *call) error {
	if ctx.Err() != nil || c.replicas.want > 0 || !b.prompt.Load() || !b.takeSlot() {
		b.enqueue(ctx, c)
		return c.wait(ctx)
	}
	defer b.releaseSlot()
	c.ctx, c.done = ctx, make(chan struct{})
	b.send(&directContext{ctx, time.Now().Add(b.directLimit)}, []*call{c})
	if ended := ctx.Err(); ended != nil && c.err != nil {
		return fmt.Errorf("%w: %w", c.err, ended)
	}
	return c.err
}

// directContext is the context of a direct call: the caller's, with a deadline for the answer.
// go-redis looks at Deadline before it reads and writes, and at Done while it dials, so it needs
// no timer.
type directContext struct {
	context.Context
	answer time.Time
}

// Deadline implements [context.Context].
func (c *directContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.answer) {
		return d, true
	}
	return c.answer, true
}

// takeSlot takes a slot for a direct call, if there is one with a connection and no call waits.
func (b *batcher) takeSlot() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots >= b.conns || len(b.waiting) > 0 {
		return false
	}
	b.slots++
	return true
}

// releaseSlot gives the slot up, or hands it to the calls that have come meanwhile.
func (b *batcher) releaseSlot() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		go b.work()
		return
	}
	b.slots--
}

// enqueue queues calls that are made at the same time, to go in as few batches as possible.
// The caller waits for each. If ctx has ended it queues none.
func (b *batcher) enqueue(ctx context.Context, calls ...*call) {
	for _, c := range calls {
		c.ctx, c.done = ctx, make(chan struct{})
	}
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, calls...)
	conns := b.conns + 1
	if len(calls) > 1 { // a batch keeps the server busy on any connection, so none is added for it
		conns = max(1, b.conns)
	}
	for n := 0; n < len(calls) && b.slots < min(conns, batchSlots); n += batchLimit {
		b.slots++
		go b.work()
	}
}

// wait waits until c is done, or ctx ends: then see do.
func (c *call) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		select {
		case <-c.done: // at the same moment
			return c.err
		default:
		}
		if c.state.CompareAndSwap(pending, abandoned) {
			return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// work sends batches until no call waits.
func (b *batcher) work() {
	for batch := b.next(); len(batch) > 0; batch = b.next() {
		ctx := context.Background()
		if len(batch) == 1 { // so that a hook's span has the caller's as its parent
			ctx = context.WithoutCancel(batch[0].ctx)
		}
		b.send(ctx, batch)
		b.mu.Lock()
		b.conns = max(b.conns, b.slots)
		b.mu.Unlock()
	}
}

// next takes the calls of the next batch. If there are none it gives up the slot.
func (b *batcher) next() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), batchLimit)
	if n == 0 {
		b.waiting = nil
		b.slots--
		return nil
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// send runs calls, and runs again those of which the server did not know the script, and those
// that it refused together: it may deny only one of their keys. Deadlines of ctx count, and the
// client's timeouts.
func (b *batcher) send(ctx context.Context, calls []*call) {
	live := slices.DeleteFunc(calls, func(c *call) bool { return c.state.Load() == abandoned })
	// Four rounds at most: together by hash, together by source, by itself by hash, by itself by source.
	for try := 0; len(live) > 0 && try < 4; try++ {
		var ended []*call
		ended, live = b.round(ctx, live)
		if try == 3 {
			ended = append(ended, live...)
		}
		for _, c := range ended {
			close(c.done)
		}
	}
}

// round sends calls in one round trip. It returns those that have ended, and those to send
// again.
func (b *batcher) round(ctx context.Context, calls []*call) (ended, again []*call) {
	if len(calls) > 1 { // else go-redis would fail all if a caller goes while it connects
		calls = slices.DeleteFunc(calls, func(c *call) bool { return !c.encode() })
	}
	var cmds []*redis.Cmd
	groups, each := b.together(calls)
	for _, group := range groups {
		cmds = append(cmds, b.togetherCommand(group))
	}
	for _, c := range each {
		cmds = append(cmds, redis.NewCmd(context.Background(), c.command(b.bySlot)...))
	}
	b.process(ctx, cmds, each)
	var read []*call
	for i, group := range groups {
		if refused := b.readTogether(group, cmds[i]); refused {
			again = append(again, group...)
		} else {
			read = append(read, group...)
		}
	}
	for i, c := range each {
		c.read(cmds[len(groups)+i].Result())
	}
	for _, c := range append(read, each...) {
		var unfit *unfitError
		switch {
		case isUnknownScript(c.err) && !c.eval:
			c.eval = true
			again = append(again, c)
		case errors.As(c.err, &unfit) && !c.takes && b.standby != nil:
			// A release must not depend on whether the server is fit for locks.
			freed, left := b.standby.round(ctx, []*call{c})
			ended, again = append(ended, freed...), append(again, left...)
		default:
			ended = append(ended, c)
		}
	}
	return ended, again
}

// process sends cmds in one round trip.
func (b *batcher) process(ctx context.Context, cmds []*redis.Cmd, each []*call) {
	if len(cmds) == 0 { // all callers have gone
		return
	}
	begun := time.Now()
	defer func() {
		err := cmds[len(cmds)-1].Err()
		b.prompt.Store((err == nil || isAnswer(err)) && time.Since(begun) < promptLimit)
	}()
	asks := slices.ContainsFunc(each, func(c *call) bool { return c.asking || c.replicas.want > 0 })
	if len(cmds) == 1 && !asks {
		_ = b.client.Process(ctx, cmds[0])
		return
	}
	pipe := b.client.Pipeline()
	first := len(cmds) - len(each) // the commands before it are for several calls each
	for i, cmd := range cmds {
		if i < first {
			_ = pipe.Process(ctx, cmd)
			continue
		}
		c := each[i-first]
		if c.asking {
			_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
		}
		_ = pipe.Process(ctx, cmd)
		if c.replicas.want > 0 { // WAIT is about what its own connection wrote
			c.waited = redis.NewIntCmd(ctx, "wait", c.replicas.want, c.replicas.within.Milliseconds())
			_ = pipe.Process(ctx, c.waited)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its error
}
