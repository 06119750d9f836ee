package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockPeer is rueidislock without client-side caching.
type rueidislockPeer struct{}

// Name implements [Peer].
func (rueidislockPeer) Name() string { return "rueidislock" }

// About implements [Peer].
func (rueidislockPeer) About() string {
	return "v1.0.79, KeyMajority 1 as its README advises for one server, DisableCache because miniredis has no CLIENT TRACKING, " +
		"which its README allows for servers without it. TryNextAfter 100 ms: it is the limit of one attempt, and the default of " +
		"20 ms is below the round trip here at times; without caching it is also how often a waiter asks. " +
		"It renews by itself at half of the lease. Check is its context. No token."
}

// rueidisPrefix is the default of LockerOption.KeyPrefix.
const rueidisPrefix = "rueidislock"

// ServerKey implements [Peer].
func (rueidislockPeer) ServerKey(key string) string { return rueidisPrefix + ":0:" + key }

// RequestOf implements [Peer].
func (rueidislockPeer) RequestOf(_ []string, script string) Request {
	switch {
	case strings.Contains(script, `"NX"`):
		return Acquire
	case strings.Contains(script, `"DEL"`):
		return Release
	case script != "":
		return Other
	}
	return None
}

// SaysTaken implements [Peer].
func (rueidislockPeer) SaysTaken(err error) bool { return errors.Is(err, rueidislock.ErrNotLocked) }

// AsksServer implements [Peer].
func (rueidislockPeer) AsksServer() bool { return false }

// Start implements [Peer].
func (rueidislockPeer) Start(o Options) (Instance, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress:       []string{address},
			ForceSingleClient: true,
			DisableCache:      true,
			ClientSetInfo:     rueidis.DisableClientSetInfo,
			ConnWriteTimeout:  o.Timeout,
			DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.Dial(ctx)
			},
		},
		KeyPrefix:    rueidisPrefix,
		KeyValidity:  o.TTL,
		KeyMajority:  1,
		TryNextAfter: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockInstance{locker}, nil
}

type rueidislockInstance struct{ locker rueidislock.Locker }

// Acquire implements [Instance]. The context of the call is also that of the hold, so
// a timer that is stopped after the call limits the wait.
func (i rueidislockInstance) Acquire(ctx context.Context, key string, wait time.Duration) (Held, error) {
	lock := i.locker.WithContext
	switch {
	case wait == 0:
		lock = i.locker.TryWithContext
	case wait > 0:
		waiting, cancel := context.WithCancel(ctx)
		ctx = waiting
		timer := time.AfterFunc(wait, cancel)
		defer timer.Stop()
	}
	ctx, cancel, err := lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidislockHeld{ctx, cancel}, nil
}

// Close implements [Instance].
func (i rueidislockInstance) Close() error {
	i.locker.Close()
	return nil
}

type rueidislockHeld struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// Context implements [Held].
func (h *rueidislockHeld) Context() context.Context { return h.ctx }

// Check implements [Held].
func (h *rueidislockHeld) Check(context.Context) error {
	if h.ctx.Err() != nil {
		return ErrNotHeld
	}
	return nil
}

// Token implements [Held].
func (h *rueidislockHeld) Token() (uint64, bool) { return 0, false }

// Release implements [Held]. The library's function has no context and no
// result. It returns when the request is answered or given up.
func (h *rueidislockHeld) Release(context.Context) error {
	err := h.Check(context.Background())
	h.cancel()
	return err
}
