package peers

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// raw is the floor of an uncontended lock: one script that takes it and one
// that frees it. Under contention it polls, which is not what it is here for.
var raw = &Peer{
	Name:  Raw,
	About: "two EVALSHA of SET NX PX and compare-and-DEL on go-redis; polls every 1 ms; no renewal, no tokens",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		return &rawClient{on: client, close: client.Close, ttl: ttl}, nil
	},
}

// rawAuto sends the same through go-redis's own batching of concurrent commands.
var rawAuto = &Peer{
	Name:  "raw-auto",
	About: "as raw, through go-redis's blocking AutoPipeline with its defaults",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		batched, err := client.AutoPipeline()
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &rawClient{on: batched, close: client.Close, ttl: ttl}, nil
	},
}

var (
	rawTake = redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`)
	rawFree = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

const rawRetry = time.Millisecond

type rawClient struct {
	on    redis.Scripter
	close func() error
	ttl   time.Duration
}

func (c *rawClient) Lock(ctx context.Context, key string) (Lease, error) {
	l := &rawLease{client: c, keys: []string{key}, owner: rand.Text()}
	for {
		taken, err := rawTake.Run(ctx, c.on, l.keys, l.owner, c.ttl.Milliseconds()).Int()
		if err != nil {
			return nil, err
		}
		if taken == 1 {
			return l, nil
		}
		timer := time.NewTimer(around(rawRetry))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func (c *rawClient) Close() error { return c.close() }

type rawLease struct {
	client *rawClient
	keys   []string
	owner  string
}

func (l *rawLease) Unlock(ctx context.Context) error {
	freed, err := rawFree.Run(ctx, l.client.on, l.keys, l.owner).Int()
	if err == nil && freed != 1 {
		err = errors.New("raw: no longer held")
	}
	return err
}

func (l *rawLease) Token() uint64 { return 0 }
