package peers

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// raw is the floor of an uncontended lock: one script acquires it and one
// releases it. Under contention it polls; that case is not a floor.
var raw = &Peer{
	Name:  Raw,
	About: "two EVALSHA of SET NX PX and compare-and-DEL on go-redis; polls every 1 ms; no renewal, no tokens",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		return newRaw(ttl, onGoRedis(client), client.Close), nil
	},
}

// rawWide has a connection for each of 64 goroutines. With the default pool of go-redis,
// ten connections for each core, they wait for each other's round trips.
var rawWide = &Peer{
	Name:  RawWide,
	About: "as raw, with a pool of 64 connections",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
		return newRaw(ttl, onGoRedis(client), client.Close), nil
	},
}

// rawAuto sends the same commands through go-redis's own batching of concurrent commands.
var rawAuto = &Peer{
	Name:  "raw-auto",
	About: "as raw, through go-redis's blocking AutoPipeline with its defaults",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client := dial(addr)
		batched, err := client.AutoPipeline()
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return newRaw(ttl, onGoRedis(batched), client.Close), nil
	},
}

// rawRueidis is the floor of a client that always pipelines.
var rawRueidis = &Peer{
	Name:  RawRueidis,
	About: "as raw, on rueidis, which pipelines",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		run := func(ctx context.Context, s *rawScript, keys, args []string) (int64, error) {
			return s.rueidis.Exec(ctx, client, keys, args).AsInt64()
		}
		return newRaw(ttl, run, func() error { client.Close(); return nil }), nil
	},
}

// rawScript is a script for both client libraries.
type rawScript struct {
	goRedis *redis.Script
	rueidis *rueidis.Lua
}

func newRawScript(text string) *rawScript {
	return &rawScript{redis.NewScript(text), rueidis.NewLuaScript(text)}
}

var (
	rawTake = newRawScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`)
	rawFree = newRawScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

const rawRetry = time.Millisecond

type runScript func(ctx context.Context, s *rawScript, keys, args []string) (int64, error)

func onGoRedis(on redis.Scripter) runScript {
	return func(ctx context.Context, s *rawScript, keys, args []string) (int64, error) {
		all := make([]any, len(args))
		for i, arg := range args {
			all[i] = arg
		}
		return s.goRedis.Run(ctx, on, keys, all...).Int64()
	}
}

type rawClient struct {
	run   runScript
	free  *rawScript
	wait  func(ctx context.Context, key string, try func() (bool, error)) error
	close func() error
	ttl   string // in ms
}

func newRaw(ttl time.Duration, run runScript, done func() error) *rawClient {
	return &rawClient{run: run, free: rawFree, wait: poll, close: done, ttl: strconv.FormatInt(ttl.Milliseconds(), 10)}
}

func (c *rawClient) Lock(ctx context.Context, key string) (Lease, error) {
	l := &rawLease{client: c, keys: []string{key}, owner: rand.Text()}
	try := func() (bool, error) {
		taken, err := c.run(ctx, rawTake, l.keys, []string{l.owner, c.ttl})
		return taken == 1, err
	}
	taken, err := try()
	if err == nil && !taken {
		err = c.wait(ctx, key, try)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// poll calls try until it succeeds.
func poll(ctx context.Context, _ string, try func() (bool, error)) error {
	for {
		timer := time.NewTimer(around(rawRetry))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		if taken, err := try(); taken || err != nil {
			return err
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
	freed, err := l.client.run(ctx, l.client.free, l.keys, []string{l.owner})
	if err == nil && freed != 1 {
		err = errors.New("raw: no longer held")
	}
	return err
}

func (l *rawLease) Token() uint64 { return 0 }
