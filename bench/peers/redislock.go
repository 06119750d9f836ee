package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
)

// redislockPeer is bsm/redislock. It waits only with a retry strategy: retry 0
// stands for the 100 ms of its README.
func redislockPeer(retry time.Duration) *Peer {
	p := &Peer{
		Name:  "redislock",
		About: "v0.9.4; LinearBackoff(100ms), as in its README",
		Rival: true,
	}
	interval := 100 * time.Millisecond
	if retry > 0 {
		interval = retry
		p.Name += "-" + retry.String()
		p.About = fmt.Sprintf("the same with LinearBackoff(%v)", retry)
	}
	p.Open = func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		return &redislockClient{
			locks:   redislock.New(client),
			ttl:     ttl,
			options: redislock.Options{RetryStrategy: redislock.LinearBackoff(interval)},
			close:   client.Close,
		}, nil
	}
	return p
}

type redislockClient struct {
	locks   *redislock.Client
	ttl     time.Duration
	options redislock.Options // LinearBackoff has no state, so all callers share it
	close   func() error
}

func (c *redislockClient) Lock(ctx context.Context, key string) (Lease, error) {
	l, err := c.locks.Obtain(ctx, key, c.ttl, &c.options)
	if err != nil {
		return nil, err
	}
	return redislockLease{l}, nil
}

func (c *redislockClient) Close() error { return c.close() }

type redislockLease struct{ lock *redislock.Lock }

func (l redislockLease) Unlock(ctx context.Context) error { return l.lock.Release(ctx) }

func (l redislockLease) Token() uint64 { return 0 }
