package peers

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Naive is a lock with all the mistakes that the oracles are about, to show that each
// oracle finds its mistake. It is not a library.
var Naive Peer = naivePeer{}

// naivePeer acquires a lock by two commands and deletes it without checking its owner.
type naivePeer struct{}

// Name implements [Peer].
func (naivePeer) Name() string { return "naive" }

// About implements [Peer].
func (naivePeer) About() string {
	return "a control for the oracles: SETNX and then PEXPIRE, DEL whoever the owner is, no renewal, contexts not obeyed, " +
		"a waiter that looks ten times a second and takes a lock that was free for three seconds, one error for all, a goroutine that never ends."
}

// ServerKey implements [Peer].
func (naivePeer) ServerKey(key string) string { return key }

// RequestOf implements [Peer].
func (naivePeer) RequestOf(words []string, _ string) Request {
	switch {
	case isCommand(words, "setnx"):
		return Acquire
	case isCommand(words, "del"):
		return Release
	case isCommand(words, "get"), isCommand(words, "pexpire"):
		return Other
	}
	return None
}

var errNaive = errors.New("naive: not acquired")

// SaysTaken implements [Peer].
func (naivePeer) SaysTaken(err error) bool { return errors.Is(err, errNaive) }

// AsksServer implements [Peer].
func (naivePeer) AsksServer() bool { return false }

// Start implements [Peer].
func (naivePeer) Start(o Options) (Instance, error) {
	go func() { select {} }()
	return &naiveInstance{ttl: o.TTL, client: newClient(o), closed: make(chan struct{})}, nil
}

type naiveInstance struct {
	ttl    time.Duration
	client *redis.Client
	once   sync.Once
	closed chan struct{}
}

// Acquire implements [Instance].
func (i *naiveInstance) Acquire(ctx context.Context, key string, wait time.Duration) (Held, error) {
	ctx = context.WithoutCancel(ctx)
	begin, free := time.Now(), 0
	for !i.take(ctx, key) {
		for {
			if wait >= 0 && time.Since(begin) >= wait || isClosed(i.closed) {
				return nil, errNaive
			}
			time.Sleep(100 * time.Millisecond)
			free++
			if !errors.Is(i.client.Get(ctx, key).Err(), redis.Nil) {
				free = 0
			}
			if free >= 30 {
				break
			}
		}
	}
	return &naiveHeld{i, key}, nil
}

// take makes one attempt.
func (i *naiveInstance) take(ctx context.Context, key string) bool {
	// SETNX has no expiry, which is the mistake.
	taken, err := i.client.SetNX(ctx, key, rand.Text(), 0).Result()
	if err != nil || !taken {
		return false
	}
	return i.client.PExpire(ctx, key, i.ttl).Err() == nil
}

// Close implements [Instance].
func (i *naiveInstance) Close() error {
	i.once.Do(func() { close(i.closed) })
	return i.client.Close()
}

type naiveHeld struct {
	instance *naiveInstance
	key      string
}

// Context implements [Held].
func (h *naiveHeld) Context() context.Context { return context.Background() }

// Check implements [Held].
func (h *naiveHeld) Check(context.Context) error { return nil }

// Token implements [Held].
func (h *naiveHeld) Token() (uint64, bool) { return 0, false }

// Release implements [Held].
func (h *naiveHeld) Release(ctx context.Context) error {
	return h.instance.client.Del(context.WithoutCancel(ctx), h.key).Err()
}
