package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncPeer is redsync on one pool.
type redsyncPeer struct{}

// Name implements [Peer].
func (redsyncPeer) Name() string { return "redsync" }

// About implements [Peer].
func (redsyncPeer) About() string {
	return "v4.18.1, one go-redis pool, its own retry delay (50 to 250 ms) without the limit of 32 tries. " +
		"A goroutine calls Extend at each third of the expiry until it is told that the lock is taken; " +
		"Check compares Until with the clock, as the deprecation note of Valid advises. No context, no token."
}

// ServerKey implements [Peer].
func (redsyncPeer) ServerKey(key string) string { return key }

// RequestOf implements [Peer].
func (redsyncPeer) RequestOf(words []string, script string) Request {
	switch {
	case strings.EqualFold(words[0], "set"):
		return Acquire
	case strings.Contains(script, `"DEL"`):
		return Release
	case script != "":
		return Other
	}
	return None
}

// SaysTaken implements [Peer]. ErrFailed has no reason.
func (redsyncPeer) SaysTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)
}

// AsksServer implements [Peer].
func (redsyncPeer) AsksServer() bool { return false }

// Start implements [Peer].
func (redsyncPeer) Start(o Options) (Instance, error) {
	client := newClient(o)
	return &redsyncInstance{options: o, client: client, sync: redsync.New(goredis.NewPool(client))}, nil
}

type redsyncInstance struct {
	options Options
	client  *redis.Client
	sync    *redsync.Redsync
}

// Acquire implements [Instance].
func (i *redsyncInstance) Acquire(ctx context.Context, key string, wait time.Duration) (Held, error) {
	m := i.sync.NewMutex(key, redsync.WithExpiry(i.options.TTL), redsync.WithTries(math.MaxInt))
	var err error
	if wait == 0 {
		err = m.TryLockContext(ctx)
	} else {
		waiting, cancel := bounded(ctx, wait)
		defer cancel()
		err = m.LockContext(waiting)
	}
	if err != nil {
		return nil, err
	}
	h := &redsyncHeld{mutex: m}
	h.renewal = renew(i.options, h.extend)
	return h, nil
}

// Close implements [Instance].
func (i *redsyncInstance) Close() error { return i.client.Close() }

type redsyncHeld struct {
	mutex   *redsync.Mutex
	lost    atomic.Bool
	renewal context.CancelFunc
}

// extend renews once and reports whether to continue. It tries again after an error of the server or the
// network, but not if the lock has another owner.
func (h *redsyncHeld) extend(ctx context.Context) bool {
	ok, err := h.mutex.ExtendContext(ctx)
	var network *redsync.RedisError
	if ok || errors.As(err, &network) || errors.Is(err, redsync.ErrExtendFailed) {
		return true
	}
	h.lost.Store(true)
	return false
}

// Context implements [Held].
func (h *redsyncHeld) Context() context.Context { return context.Background() }

// Check implements [Held].
func (h *redsyncHeld) Check(context.Context) error {
	if h.lost.Load() || !time.Now().Before(h.mutex.Until()) {
		return ErrNotHeld
	}
	return nil
}

// Token implements [Held].
func (h *redsyncHeld) Token() (uint64, bool) { return 0, false }

// Release implements [Held].
func (h *redsyncHeld) Release(ctx context.Context) error {
	h.renewal()
	ok, err := h.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("redsync: unlock: %w", ErrNotHeld)
	}
	return err
}

// renew calls extend at each third of the lease, until extend returns false or the
// returned function is called. That function does not wait for a running call.
func renew(o Options, extend func(context.Context) bool) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(renewEvery(o.TTL))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			o.Gate()
			limited, done := context.WithTimeout(ctx, renewEvery(o.TTL))
			more := extend(limited)
			done()
			if !more {
				return
			}
		}
	}()
	return cancel
}
