// Package redislock is a lock backend on Redis, standalone, behind Sentinel or
// as a Cluster, from version 6.2. A lock is the hash that Redisson's RLock
// writes, so that a Java service on Redisson and a lockgen service exclude and
// wake each other on one key; field <uuid>:<n> is the owner's, with value 1. A
// re-entry is counted in the process and leaves it at 1: a counter at the
// server would count a command that was sent twice. Read-write locks, fair locks and
// semaphores do not meet Redisson's RReadWriteLock, RFairLock, RSemaphore and
// RPermitExpirableSemaphore: see below.
//
// One Redis whose replica is promoted can lose a lock that the replica had not
// received, and one that restarts loses what it had not written to disk, without
// persistence all locks: two holders are then possible until the first one's lease
// ends. Guard what must never be written twice by the fencing token, which keeps
// rising all the same. [Options].Replicas makes the former rarer.
//
// While a primary that Sentinel or a Cluster looks after is replaced, or a slot
// is on its way, who would wait for a lock waits for that as well, until its
// context ends and, counted from the first call that failed, for 10 s at most;
// then, and with a policy that says try, calls are sent again for about half a
// second, 5 s if no server answers, and fail with driver.ErrUnavailable, or with
// driver.ErrIndeterminate if one of them may have arrived. A server by itself is not
// waited for longer if it refuses, and is asked twice if it is silent: each time for
// as long as the client's timeouts allow, unless the context ends. Holders keep the
// lock if the new primary has it and their lease lasts until then, and hear of its
// loss otherwise.
//
// In a Cluster all keys of a lock are in the slot of its name. A held lock
// outlasts the migration of its slot and can be renewed and released meanwhile;
// servers refuse to take a lock of the slot (TRYAGAIN) until all of its keys have
// arrived. Releases are announced, and listened for, on the lock's plain channel
// and, from Redis 7.0 on, on the sharded one: Redisson uses either, depending on
// its version.
//
// Only mutexes are shared with Redisson. Read-write locks, fair locks, semaphores and
// conditions are a record of this package: a string at the key. Redisson's RReadWriteLock,
// RFairLock, RSemaphore and RPermitExpirableSemaphore write another layout, and do not meet
// them: whoever finds the other's value at the key gets driver.ErrConflict, or Redisson an
// error of its own. On the name of a mutex, RReadWriteLock and RLock do not exclude each
// other; use RLock on the Java side. A key whose record was used in the last 2.5 s can't be
// that of a mutex.
//
// While a server is away, go-redis prints each connection that it can't dial by its
// own logger; redis.SetLogger changes that.
//
// Least rights of an ACL user, for locks under seckill::
//
//	+evalsha +eval +time +exists +type +hexists +hkeys +hset +hdel +get +set +pttl +pexpire
//	+incrby +zadd +zcard +zrange +zrem +publish +subscribe +unsubscribe +ping
//	+pubsub|numsub +info|memory +info|server ~seckill:* ~lockgen:* &redisson_lock__channel:* &lockgen:*
//
// (+info is for the check of the eviction policy, made on each new connection, and
// for whether one command may be about many locks; without it, and without publish,
// locks work, unchecked and by polling, and each is taken, renewed and released by a
// command of its own. Without +pubsub Redisson's clients get less than their share; without
// +psubscribe and &* a process of ours that waits for one of them counts as another.) A
// Cluster takes +cluster|slots +asking as well and, for its sharded channels,
// +pubsub|shardnumsub +spublish +ssubscribe +sunsubscribe; Replicas takes +wait.
package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// grantLease is the lease that the next in line is granted, until it renews it. A
	// process that hangs in the queue costs the others so long, once, or a second, after
	// which somebody asks.
	grantLease = 500 * time.Millisecond
	// leftToRedisson is how long a free lock is left to Redisson's clients.
	leftToRedisson = 10 * time.Millisecond
	// lookAgain is how often the first in line looks meanwhile whether one of them has it.
	lookAgain = 2 * time.Millisecond
	// queueLimit is how long a queue outlives its last arrival. Whoever waits
	// arrives anew once a second.
	queueLimit = 10 * time.Second
	// tokenLimit is how long the last fencing token of a lock is remembered: after that
	// the server's clock is ahead of it, unless it was set back by as much. Tokens that are
	// reserved ahead of the clock are remembered for the length of the lease beside.
	tokenLimit = 2500 * time.Millisecond
	// straggler is how long after its lease's length an attempt without an
	// answer may still reach the server and must find itself undone.
	straggler = time.Minute
	// maxTTL is the longest lease: far below what the server's clock can hold
	// when a tombstone's time is added.
	maxTTL = 10 * 365 * 24 * time.Hour
)

// resendAfter is when a call without an answer is sent again. Each resend is
// idempotent; after the last the outcome is unknown.
var resendAfter = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// Backend keeps locks in Redis. Make it with [New] or [Open]; its methods may
// be called from any number of goroutines.
type Backend struct {
	options    Options
	life       *engine.Life
	own        redis.UniversalClient // dialed by us, from the caller's options
	unusable   error                 // why there is none
	sentinels  []string              // the addresses of those that name the server, if any do
	conns      *trackedConns
	router     router
	subscriber *subscriber
	kinds      *record.Locks // that are no mutexes
}

// Ping implements [driver.Pinger]: it asks the server by which locks would be taken,
// in a Cluster the one of some slot, whether it is fit for them.
func (b *Backend) Ping(ctx context.Context) error {
	if b.unusable != nil {
		return b.unusable
	}
	l, err := b.router.of(ctx, "lockgen", route{}, false)
	if err != nil {
		return err
	}
	_, err = within(ctx, func() (string, error) { return l.client.Ping(ctx).Result() })
	return err
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: the last Locker to close closes the connections.
func (b *Backend) Close() (err error) {
	b.life.Close(func() {
		b.conns.cut()
		err = errors.Join(b.router.close(), b.own.Close())
	})
	return err
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if b.unusable != nil {
		return nil, b.unusable
	}
	k, err := vet(a)
	if err != nil {
		return nil, err
	}
	if a.Mode.Kind != 0 {
		l, err := b.kinds.Acquire(ctx, a)
		if err != nil {
			_, err = b.besideForeign(ctx, a, nil, err)
		}
		return l, err
	}
	if a.Recall {
		b.subscriber.register(ctx, a)
	}
	var w *waiter
	stood := false
	if a.Queue {
		if w = b.subscriber.waiter(a, false); w != nil {
			if l := w.claim(b, k, a); l != nil && b.options.Replicas == 0 {
				w.ended()
				return b.subscriber.hold(l), nil
			}
			stood = w.stands()
		}
	}
	l, held, err := b.attemptAcquire(ctx, k, a, w, nil)
	switch {
	case held != nil:
		held.Notified = stood
		if !a.Queue {
			b.subscriber.forget(a.ID)
		}
		return nil, held
	case w != nil:
		w.ended()
	}
	if err != nil {
		b.subscriber.forget(a.ID)
		return nil, err
	}
	return b.subscriber.hold(l), nil
}

// vet returns the keys of a, or an error if the server would refuse it.
func vet(a *driver.Acquisition) (keys, error) {
	k, err := keysOf(a.Key)
	if err == nil && (a.TTL < time.Millisecond || a.TTL > maxTTL) {
		// The server would take the lock and drop it at once, or refuse halfway.
		err = fmt.Errorf("%w: a lease of %v; redislock takes from %v to %v", driver.ErrInvalid, a.TTL, time.Millisecond, maxTTL)
	}
	return k, err
}

// attemptAcquire asks the server, which began may have been first. It returns one of the
// three.
func (b *Backend) attemptAcquire(ctx context.Context, k keys, a *driver.Acquisition, w *waiter, began *attempt) (*lease, *driver.HeldError, error) {
	c, unanswered, err := b.goOn(ctx, a.Key, b.acquire(k, a, w), began)
	a.MayHaveRun = a.MayHaveRun || unanswered
	if err != nil {
		held, err := b.besideForeign(ctx, a, w, err)
		return nil, held, err
	}
	switch r := c.reply; {
	case r.kind == ':' && r.number > 0:
	case r.kind == '*' && len(r.numbers) == 3:
		a.MayBeGranted = a.MayBeGranted || a.Queue
		if w != nil {
			w.held(c.sent(), r.numbers[1], r.numbers[2] == 1, k.channel)
		}
		return nil, &driver.HeldError{RetryAfter: time.Duration(r.numbers[0]) * time.Millisecond, Holder: r.value}, nil
	case r.kind == '+' && r.text == "undone":
		return nil, nil, errors.New("the acquisition was undone already")
	default:
		return nil, nil, fmt.Errorf("the server's answer to a lock script makes no sense: %v", r)
	}
	if err := b.confirm(ctx, a, c.copies); err != nil {
		return nil, nil, err
	}
	l := newLease(b, k, a, uint64(c.reply.number))
	if w != nil && w.afterRedisson() {
		l.n = 1 // as holdOnce
	}
	l.extend(c.sent(), a.TTL)
	return l, nil, nil
}

// acquire returns the request that takes k for a. It passes no argument that
// goes without saying.
func (b *Backend) acquire(k keys, a *driver.Acquisition, w *waiter) request {
	r := request{
		script: acquireScript,
		keys:   [4]string{k.lock, k.queue, k.token, k.undone(a.ID)},
		nkeys:  4,
		args:   [5]string{a.ID, strconv.FormatInt(a.TTL.Milliseconds(), 10), "1"},
		nargs:  2,
		copies: b.copies(),

		patient: a.Queue,
	}
	if a.Tokens > 1 {
		r.args[2] = strconv.FormatUint(a.Tokens, 10)
		r.nargs = 3
	}
	if a.Queue && (w == nil || !w.refused()) { // who can't be told polls
		r.args[3] = queueEntry(a)
		r.nargs = 4
	}
	return r
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	b.subscriber.undone(a)
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	f := freeing{
		last:      "-" + strconv.FormatUint(a.Tokens, 10),
		entry:     queueEntry(a),
		tombstone: tombstone(a.MayHaveRun, a.TTL),
	}
	_, _, err = b.free(ctx, a.Key, f.request(k, a.ID), f.tombstone, nil)
	if errors.Is(err, driver.ErrConflict) {
		return nil // something else is at the key, and the rest was undone
	}
	return err
}

func tombstone(unanswered bool, ttl time.Duration) time.Duration {
	if !unanswered {
		return 0
	}
	return ttl + straggler
}

// run sends r to the server of key, again where an attempt had no answer or
// was refused for the moment, and returns the attempt that was answered.
// unanswered says that some attempt had none, so that it may have run, or may
// yet run, beside the one that was answered.
func (b *Backend) run(ctx context.Context, key string, r request) (c *call, unanswered bool, err error) {
	return b.goOn(ctx, key, r, nil)
}

// goOn is run where began, if it is not nil, was the first attempt.
func (b *Backend) goOn(ctx context.Context, key string, r request, began *attempt) (c *call, unanswered bool, err error) {
	r.script = r.script.in(b.router.cluster() != nil)
	var to route
	var first time.Time
	for attempt := 0; ; attempt++ {
		c = &call{request: r, asking: to.asking}
		if attempt == 0 {
			first = time.Now()
		}
		var l *batcher
		if attempt == 0 && began != nil {
			c, l, err = began.call, began.batcher, began.err
		} else if l, err = b.router.of(ctx, key, to, r.copies.want > 0); err == nil {
			err = b.attempt(ctx, l, c, attempt)
		}
		unanswered = unanswered || errors.Is(err, errNoAnswer)
		switch {
		case err == nil:
			if l.troubled.Load() {
				b.router.recovered(l)
			}
			if r.script.takes {
				l.warm(b.life)
			}
			return c, unanswered, nil
		case r.splits && isApart(err):
		case ctx.Err() == nil && (b.router.resends(attempt, first) || r.patient && b.router.bears(l, first)):
			var passing bool
			if to, passing = b.router.passing(err, l); passing && engine.Pause(ctx, resendAfter[min(attempt, len(resendAfter)-1)]) {
				continue
			}
		}
		if err = b.advised(l, explained(err)); unanswered {
			return nil, true, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
		return nil, false, err
	}
}

// attempt has l do c for the nth time.
func (b *Backend) attempt(ctx context.Context, l *batcher, c *call, n int) error {
	ctx, stop := b.router.suspecting(ctx, c.script, suspicious<<min(n, 1)+c.copies.within)
	defer stop()
	return l.of(c.script).do(ctx, c)
}

// explained says of an answer what the Locker's caller is to know of it.
func explained(err error) error {
	if text := err.Error(); strings.Contains(text, "WRONGTYPE") || strings.HasPrefix(text, "CONFLICT ") {
		return fmt.Errorf("%w: %w", driver.ErrConflict, err)
	}
	return err
}
