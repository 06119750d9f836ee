package peers

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const rueidisPrefix = "rueidislock"

// rueidislockPeer is rueidislock on one server, in its best configuration:
//
//   - KeyMajority 1, since there is one server; the default of 2 locks three keys;
//   - NoLoopTracking: without it each renewal invalidates its own key, which makes the
//     library renew again, in an endless loop (v1.0.79);
//   - TryNextAfter 1 s: with client-side caching it is not a polling interval
//     but the limit of one attempt, and the default of 20 ms fails on a busy machine.
//
// The renewal interval is the default, half of the lease.
var rueidislockPeer = &Peer{
	Name:       "rueidislock",
	About:      "v1.0.79; client-side caching, KeyMajority 1, NoLoopTracking, TryNextAfter 1 s; renews at half of the lease",
	Rival:      true,
	RenewEvery: func(ttl time.Duration) time.Duration { return ttl / 2 },
	ServerKey:  func(key string) string { return rueidisPrefix + ":0:" + key },
	Open: func(addr string, ttl time.Duration) (Client, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
			KeyPrefix:      rueidisPrefix,
			KeyValidity:    ttl,
			KeyMajority:    1,
			NoLoopTracking: true,
			TryNextAfter:   time.Second,
		})
		if err != nil {
			return nil, err
		}
		return rueidislockClient{locker}, nil
	},
}

type rueidislockClient struct{ locker rueidislock.Locker }

func (c rueidislockClient) Lock(ctx context.Context, key string) (Lease, error) {
	ctx, cancel, err := c.locker.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidislockLease{ctx, cancel}, nil
}

func (c rueidislockClient) Close() error {
	c.locker.Close()
	return nil
}

type rueidislockLease struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// Unlock learns of a loss only from the lock's context. cancel waits until the key
// is deleted, but returns nothing.
func (l *rueidislockLease) Unlock(context.Context) error {
	err := l.ctx.Err()
	l.cancel()
	return err
}

func (l *rueidislockLease) Token() uint64 { return 0 }
