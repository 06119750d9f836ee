// Package redislock is a lock backend on Redis, standalone, behind Sentinel or
// as a Cluster, from version 6.2. A lock is the hash that Redisson's RLock
// writes, so that a Java service on Redisson and a lockgen service exclude and
// wake each other on one key; field <uuid>:<n> is the owner's, with value 1. A
// re-entry is counted in the process and leaves it at 1: a counter at the
// server would count a command that was sent twice.
//
// One Redis whose replica is promoted can lose a lock that the replica had not
// received: two holders are then possible until the first one's lease ends.
// Guard what must never be written twice by the fencing token, which keeps
// rising all the same. [Options].Replicas makes that rarer.
//
// While a primary is replaced, calls are sent again for about half a second,
// and then fail with lock.ErrUnavailable, also those that were waiting for the
// lock; holders keep it if the new primary has it and their lease lasts until
// then, and hear of its loss otherwise.
//
// In a Cluster all keys of a lock are in the slot of its name. A held lock
// outlasts the migration of its slot; while that is under way, most servers
// refuse (TRYAGAIN) to take or free the slot's locks, which is lock.ErrUnavailable
// if it takes longer than the attempts. Notices of a release go over the
// Cluster's plain channels, whose load grows with its nodes; for Redisson's
// clients the sharded channel is told as well.
//
// Least rights of an ACL user, for locks under seckill::
//
//	+evalsha +eval +time +exists +hexists +hset +hdel +set +pttl +pexpire
//	+incrby +zadd +zrange +zrem +zscore +publish +subscribe +unsubscribe +ping
//	+info|memory ~seckill:* ~lockgen:* &redisson_lock__channel:*
//
// (+info is for the check of the eviction policy; without it, and without
// publish, locks work, unchecked and by polling.) A Cluster takes +cluster|slots
// +asking and, for Redisson's clients, +spublish as well; Replicas takes +wait.
package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

const (
	// turnLimit is how long a free lock is kept for the process whose turn it
	// is. A process that died in the queue costs the others so long, once.
	turnLimit = 500 * time.Millisecond
	// queueLimit is how long a queue outlives its last arrival. Whoever waits
	// arrives anew once a second.
	queueLimit = 10 * time.Second
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

// Options of a [Backend].
type Options struct {
	// AllowEviction accepts a server with a maxmemory-policy other than
	// noeviction. Such a server may evict a lock that is held, which lets a
	// second holder in.
	AllowEviction bool

	// Replicas is how many replicas must have a lock before it counts as
	// taken: WAIT on the connection that took it. If fewer have it within
	// ReplicaTimeout, the lock is given back and the acquire fails with
	// lock.ErrUnavailable. 0, the default, asks nothing and costs nothing.
	//
	// It makes it rarer, by far, that a failover loses a lock, and does not
	// prove that none is lost: the replica that is promoted need not be one of
	// those that answered (unless Replicas is the number of all), a replica may
	// restart empty, renewals are not waited for, and until the acquire was
	// given back others found the lock held. The fencing token remains what
	// guards a write. An acquire that is not contended costs one command more.
	Replicas int
	// ReplicaTimeout is 1s unless set.
	ReplicaTimeout time.Duration
}

// Backend keeps locks in Redis. Make it with [New] or [Open]; its methods may
// be called from any number of goroutines.
type Backend struct {
	options  Options
	own      redis.UniversalClient // dialed by us, from the caller's options
	wires    *wires
	lanes    lanes
	listener *listener
	users    atomic.Int64 // Lockers that attached and did not close
	closed   sync.Once
}

// New returns a Backend for the servers of client, a *redis.Client (also of
// Sentinel) or a *redis.ClusterClient; it panics on any other. It copies the
// client's options and dials connections of its own, because a renewal must
// not wait behind business traffic, and because a command that the library
// repeats behind our back could not be told from one that was sent once. It
// does no I/O, and never closes client. A client of Sentinel is asked where the
// primary is for as long as the Backend lives: close it later, or use [Open].
func New(client redis.UniversalClient, options ...Options) *Backend {
	w := newWires()
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.Dialer = w.over(o.Dialer)
		return newBackend(redis.NewClient(singleOptions(&o)), w, options)
	case *redis.ClusterClient:
		o := *c.Options()
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer = w.over(o.Dialer)
		b := newBackend(redis.NewClusterClient(mapOptions(clusterOptions(o))), w, options)
		b.lanes.node = clusterOptions(o)
		return b
	}
	panic(fmt.Sprintf("redislock: New takes a *redis.Client or a *redis.ClusterClient, not %T; see Open", client))
}

// Open is [New] for the servers that universal describes: one, those that a
// Sentinel names, or a Cluster. Its fields that have to do with where reads go
// count for nothing.
func Open(universal *redis.UniversalOptions, options ...Options) *Backend {
	if universal.MasterName != "" {
		return openSentinel(*universal, options)
	}
	client := redis.NewUniversalClient(universal)
	defer client.Close() // it never dialed
	return New(client, options...)
}

func newBackend(own redis.UniversalClient, w *wires, options []Options) *Backend {
	b := &Backend{own: own, wires: w, lanes: lanes{own: own, wires: w}, listener: newListener(own)}
	single, ok := own.(*redis.Client)
	b.lanes.roams = !ok || single.Options().Addr == sentinelAddr
	for _, o := range options {
		b.options = o
	}
	return b
}

// Attach implements [lock.Attacher].
func (b *Backend) Attach() { b.users.Add(1) }

// Close implements [lock.Backend]: the last Locker to close closes the connections.
func (b *Backend) Close() (err error) {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.closed.Do(func() {
		b.wires.cut()
		b.listener.close()
		err = errors.Join(b.lanes.close(), b.own.Close())
		b.lanes.work.Wait()
	})
	return err
}

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, a *lock.Acquisition) (lock.Lease, error) {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil, err
	}
	if a.TTL < time.Millisecond || a.TTL > maxTTL {
		// The server would take the lock and drop it at once, or refuse halfway.
		return nil, fmt.Errorf("%w: a lease of %v; redislock takes from %v to %v", lock.ErrInvalid, a.TTL, time.Millisecond, maxTTL)
	}
	queue := "0"
	if a.Queue {
		queue = "1"
	}
	c := &call{
		script: acquireScript,
		keys:   k.of(a.ID),
		args: []any{a.ID, a.TTL.Milliseconds(), a.Tokens, remembered(a).Milliseconds(),
			process(a.ID), queue, k.channel},
		copies: b.copies(),
	}
	reply, unanswered, err := b.run(ctx, a.Key, c)
	a.Unanswered = a.Unanswered || unanswered
	if err != nil {
		return nil, err
	}
	state, value, err := pair(reply)
	switch {
	case err != nil:
		return nil, err
	case state == 0:
		return nil, &lock.HeldError{For: time.Duration(value) * time.Millisecond}
	case state < 0:
		return nil, errors.New("the acquisition was undone already")
	}
	if err := b.confirm(ctx, a, c.copies); err != nil {
		return nil, err
	}
	l := &lease{backend: b, keys: k, key: a.Key, id: a.ID, first: uint64(value), n: a.Tokens, unanswered: a.Unanswered}
	l.extend(c.sent, a.TTL)
	return l, nil
}

// Undo implements [lock.Backend].
func (b *Backend) Undo(ctx context.Context, a *lock.Acquisition) error {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	leaving := ""
	if a.Queue {
		leaving = process(a.ID)
	}
	unused := "-" + strconv.FormatUint(a.Tokens, 10)
	_, _, err = b.run(ctx, a.Key, release(k, a.ID, unused, leaving, tombstone(a.Unanswered, a.TTL)))
	return err
}

// release returns the call that frees k of id.
func release(k keys, id, last, leaving string, tombstone time.Duration) *call {
	return &call{
		script: releaseScript,
		keys:   k.of(id),
		args:   []any{id, last, leaving, k.channel, tombstone.Milliseconds()},
	}
}

// remembered is how long the server keeps the tokens of a lease in mind: until
// its clock has surely passed what a block reserved ahead of it; for a lone
// token, which is not ahead, long enough to outlast a clock that is set back
// between one hold and the next.
func remembered(a *lock.Acquisition) time.Duration {
	if a.Tokens == 1 {
		return min(a.TTL, 10*time.Second) + time.Second
	}
	return a.TTL + time.Second
}

func tombstone(unanswered bool, ttl time.Duration) time.Duration {
	if !unanswered {
		return 0
	}
	return ttl + straggler
}

// run sends c to the server of key, again where an attempt had no answer or
// was refused for the moment. unanswered says that some attempt had none, so
// that it may have run, or may yet run, beside the one that was answered.
func (b *Backend) run(ctx context.Context, key string, c *call) (reply any, unanswered bool, err error) {
	var to route
	for attempt := 0; ; attempt++ {
		try := &call{script: c.script.in(b.lanes.cluster() != nil), keys: c.keys, args: c.args, asking: to.asking, copies: c.copies}
		begin := time.Now()
		var l *lane
		if l, err = b.lanes.of(ctx, key, to, c.copies.want > 0); err == nil {
			if err = b.check(ctx, l); err == nil {
				reply, err = b.attempt(ctx, l, try, attempt)
				unanswered = unanswered || errors.Is(err, errNoAnswer)
			}
		}
		switch {
		case err == nil:
			c.sent, c.copies = try.sent, try.copies
			return reply, unanswered, nil
		case ctx.Err() == nil && attempt < len(resendAfter):
			var passing bool
			if to, passing = b.lanes.passing(err, begin); passing && pause(ctx, resendAfter[attempt]) {
				continue
			}
		}
		if unanswered {
			return nil, true, fmt.Errorf("%w: %w", lock.ErrIndeterminate, err)
		}
		return nil, false, explained(err)
	}
}

// attempt has l do c. Where another server may take the place of one that has
// fallen silent it does not wait as long as the client's timeouts at once.
func (b *Backend) attempt(ctx context.Context, l *lane, c *call, n int) (any, error) {
	if !b.lanes.roams {
		return l.do(ctx, c)
	}
	ctx, cancel := context.WithTimeout(ctx, suspicious<<n+c.copies.within)
	defer cancel()
	return l.do(ctx, c)
}

// explained says of an answer what the Locker's caller is to know of it.
func explained(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", lock.ErrConflict, err)
	}
	return err
}

// pause waits d, a little more or less, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d - rand.N(d/4))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// check refuses, before the first lock at a server, one that may evict locks.
func (b *Backend) check(ctx context.Context, l *lane) error {
	if l.checked.Load() || b.options.AllowEviction {
		return nil
	}
	// go-redis hears of a deadline, but not of a cancellation, while it reads.
	verdict := make(chan error, 1)
	go func() { verdict <- l.mayEvict() }()
	select {
	case err := <-verdict:
		if err == nil {
			l.checked.Store(true)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
}

// process returns the number that stands for the Locker of an acquisition in
// queues and on channels: digits above 1, because Redisson's clients read
// every message on a lock's channel as a number and act on 0 and 1.
func process(id string) string {
	name, _, _ := strings.Cut(id, ":")
	sum := sha1.Sum([]byte(name))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])>>12|1<<51, 10)
}

// pair reads the two integers that a script answered.
func pair(reply any) (first, second int64, err error) {
	list, ok := reply.([]any)
	if ok && len(list) == 2 {
		first, ok = list[0].(int64)
		if ok {
			second, ok = list[1].(int64)
		}
		if ok {
			return first, second, nil
		}
	}
	return 0, 0, fmt.Errorf("the server's answer to a lock script makes no sense: %v", reply)
}
