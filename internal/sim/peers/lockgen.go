package peers

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// Ours is the name of this project's library.
const Ours = "lockgen"

// lockgenPeer is this project's library.
type lockgenPeer struct{}

// Name implements [Peer].
func (lockgenPeer) Name() string { return Ours }

// About implements [Peer].
func (lockgenPeer) About() string {
	return "this project, lock.New(redislock.New(client), options) with the HandOff of the plan. " +
		"It renews by itself at a third of the lease. Check is lock.Check, the token is lock.Token."
}

// ServerKey implements [Peer].
func (lockgenPeer) ServerKey(key string) string { return key }

// RequestOf implements [Peer]. A release names the channel, an acquire only the queue.
func (lockgenPeer) RequestOf(words []string, script string) Request {
	if script == "" {
		return None
	}
	queue := false
	for _, w := range words {
		if strings.HasPrefix(w, "redisson_lock__channel:") {
			return Release
		}
		queue = queue || strings.HasPrefix(w, "lockgen:queue:")
	}
	if queue {
		return Acquire
	}
	return Other
}

// SaysTaken implements [Peer].
func (lockgenPeer) SaysTaken(err error) bool {
	return errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrIndeterminate)
}

// AsksServer implements [Peer].
func (lockgenPeer) AsksServer() bool { return false }

// Start implements [Peer].
func (lockgenPeer) Start(o Options) (Instance, error) {
	client := newClient(o)
	return &lockgenInstance{
		ttl:    o.TTL,
		client: client,
		locker: lock.New(redislock.New(client), &lock.Options{HandOff: o.HandOff}),
	}, nil
}

type lockgenInstance struct {
	ttl    time.Duration
	client *redis.Client
	locker *lock.Locker
}

// Acquire implements [Instance].
func (i *lockgenInstance) Acquire(ctx context.Context, key string, wait time.Duration) (Held, error) {
	p := &lock.Policy{Method: "Peers.work", TTL: i.ttl, Try: wait == 0, Wait: max(wait, 0)}
	ctx, held, err := i.locker.Acquire(ctx, p, key)
	if err != nil {
		return nil, err
	}
	token, _ := lock.Token(ctx)
	return &lockgenHeld{ctx, held, token}, nil
}

// closeLimit is how long Close waits for holds. There should be none.
const closeLimit = 2 * time.Second

// Close implements [Instance].
func (i *lockgenInstance) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return errors.Join(i.locker.Close(ctx), i.client.Close())
}

type lockgenHeld struct {
	ctx   context.Context
	held  *lock.Hold
	token uint64
}

// Context implements [Held].
func (h *lockgenHeld) Context() context.Context { return h.ctx }

// Check implements [Held].
func (h *lockgenHeld) Check(context.Context) error { return lock.Check(h.ctx) }

// Token implements [Held].
func (h *lockgenHeld) Token() (uint64, bool) { return h.token, true }

// Release implements [Held]. It has its own time limit.
func (h *lockgenHeld) Release(context.Context) (err error) {
	h.held.Release(&err)
	return err
}
