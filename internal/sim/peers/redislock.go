package peers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockPeer is bsm/redislock.
type redislockPeer struct{}

// Name implements [Peer].
func (redislockPeer) Name() string { return "redislock" }

// About implements [Peer].
func (redislockPeer) About() string {
	return "v0.9.4, LinearBackoff(100ms) as in its example, a context with a deadline (without one it waits for one ttl only). " +
		"A goroutine calls Refresh at each third of the ttl until it is told that the lock is gone; " +
		"Check asks for the TTL and holds if that is above 0, as in its README. No context, no token."
}

// ServerKey implements [Peer].
func (redislockPeer) ServerKey(key string) string { return key }

// RequestOf implements [Peer].
func (redislockPeer) RequestOf(_ []string, script string) Request {
	switch {
	case strings.Contains(script, `"NX"`):
		return Acquire
	case strings.Contains(script, `"del"`):
		return Release
	case script != "":
		return Other
	}
	return None
}

// SaysTaken implements [Peer].
func (redislockPeer) SaysTaken(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }

// AsksServer implements [Peer].
func (redislockPeer) AsksServer() bool { return true }

// Start implements [Peer].
func (redislockPeer) Start(o Options) (Instance, error) {
	client := newClient(o)
	return &redislockInstance{options: o, client: client, locks: redislock.New(client)}, nil
}

type redislockInstance struct {
	options Options
	client  *redis.Client
	locks   *redislock.Client
}

// forever is the deadline of a wait without one.
const forever = time.Hour

// Acquire implements [Instance].
func (i *redislockInstance) Acquire(ctx context.Context, key string, wait time.Duration) (Held, error) {
	var how *redislock.Options
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if wait != 0 {
		how = &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		if wait < 0 {
			wait = forever
		}
		waiting, cancel = bounded(ctx, wait)
	}
	defer cancel()
	l, err := i.locks.Obtain(waiting, key, i.options.TTL, how)
	if err != nil {
		return nil, err
	}
	h := &redislockHeld{lock: l, ttl: i.options.TTL}
	h.renewal = renew(i.options, h.refresh)
	return h, nil
}

// Close implements [Instance].
func (i *redislockInstance) Close() error { return i.client.Close() }

type redislockHeld struct {
	lock    *redislock.Lock
	ttl     time.Duration
	lost    atomic.Bool
	renewal context.CancelFunc
}

// refresh renews once and reports whether to continue.
func (h *redislockHeld) refresh(ctx context.Context) bool {
	if errors.Is(h.lock.Refresh(ctx, h.ttl, nil), redislock.ErrNotObtained) {
		h.lost.Store(true)
	}
	return !h.lost.Load()
}

// Context implements [Held].
func (h *redislockHeld) Context() context.Context { return context.Background() }

// Check implements [Held].
func (h *redislockHeld) Check(ctx context.Context) error {
	if h.lost.Load() {
		return ErrNotHeld
	}
	left, err := h.lock.TTL(ctx)
	switch {
	case err != nil:
		return ErrUnknown
	case left <= 0:
		return ErrNotHeld
	}
	return nil
}

// Token implements [Held].
func (h *redislockHeld) Token() (uint64, bool) { return 0, false }

// Release implements [Held].
func (h *redislockHeld) Release(ctx context.Context) error {
	h.renewal()
	return h.lock.Release(ctx)
}
