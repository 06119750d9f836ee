package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redsyncPeer is redsync on one server, without its limit of 32 tries, since a
// workload waits as long as necessary. With retry 0 it keeps its default delay, 50
// to 250 ms at random.
func redsyncPeer(retry time.Duration) *Peer {
	p := &Peer{
		Name:   "redsync",
		About:  "v4.18.1, one pool; its own retry delay of 50 to 250 ms, without its limit of 32 tries",
		Rival:  true,
		Direct: []string{"set"}, // SET NX PX; only its release is a script
	}
	options := []redsync.Option{redsync.WithTries(math.MaxInt)}
	if retry > 0 {
		p.Name += "-" + retry.String()
		p.About = fmt.Sprintf("the same with a retry delay of %v, give or take a quarter", retry)
		options = append(options, redsync.WithRetryDelayFunc(func(int) time.Duration { return around(retry) }))
	}
	p.Open = func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		return &redsyncClient{
			sync:    redsync.New(goredis.NewPool(client)),
			options: append(options[:len(options):len(options)], redsync.WithExpiry(ttl)),
			close:   client.Close,
		}, nil
	}
	return p
}

type redsyncClient struct {
	sync    *redsync.Redsync
	options []redsync.Option
	close   func() error
}

func (c *redsyncClient) Lock(ctx context.Context, key string) (Lease, error) {
	m := c.sync.NewMutex(key, c.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLease{m}, nil
}

func (c *redsyncClient) Close() error { return c.close() }

type redsyncLease struct{ mutex *redsync.Mutex }

func (l redsyncLease) Unlock(ctx context.Context) error {
	ok, err := l.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("redsync: no longer held")
	}
	return err
}

func (l redsyncLease) Token() uint64 { return 0 }
