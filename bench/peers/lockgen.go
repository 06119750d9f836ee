package peers

import (
	"context"
	"errors"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// lockgenPeer is lockgen on Redis with default Options, on a client
// of the same kind as the others'. It renews leases and has fencing tokens.
var lockgenPeer = &Peer{
	Name:       Ours,
	About:      "this project; default Options; renews at a third of the lease, fencing tokens",
	RenewEvery: func(ttl time.Duration) time.Duration { return ttl / 3 },
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		return &lockgenClient{
			locker: lock.New(redislock.New(client), nil),
			policy: &lock.Policy{Method: "bench", TTL: ttl},
			close:  client.Close,
		}, nil
	},
}

// closeLimit is how long Close waits for holds. There should be none.
const closeLimit = 2 * time.Second

type lockgenClient struct {
	locker *lock.Locker
	policy *lock.Policy
	close  func() error
}

func (c *lockgenClient) Lock(ctx context.Context, key string) (Lease, error) {
	_, held, err := c.locker.Acquire(ctx, c.policy, key)
	if err != nil {
		return nil, err
	}
	return lockgenLease{held}, nil
}

// LockKind implements [KindClient].
func (c *lockgenClient) LockKind(ctx context.Context, kind Kind, key string, n uint64) (l Lease, alone bool, err error) {
	p := *c.policy
	switch kind {
	case Readers:
		p.Read = true
	case Reads:
		alone = Writes(n)
		p.Write, p.Read = alone, !alone
	case Permits:
		p.Permits = PermitsOf
	case Fair:
		p.Fair, alone = true, true
	}
	_, held, err := c.locker.Acquire(ctx, &p, key)
	if err != nil {
		return nil, false, err
	}
	return lockgenLease{held}, alone, nil
}

// Keep implements [Keeper].
func (c *lockgenClient) Keep(d time.Duration) { c.policy.Sticky = d }

func (c *lockgenClient) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return errors.Join(c.locker.Close(ctx), c.close())
}

// lockgenLease adapts a Hold to a Lease without an allocation.
type lockgenLease struct{ held *lock.Hold }

func (l lockgenLease) Unlock(context.Context) error { return l.held.Unlock() }

func (l lockgenLease) Token() uint64 { return l.held.Token() }
