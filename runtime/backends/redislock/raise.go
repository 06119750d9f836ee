package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

//go:embed raise.lua
var raiseSource string

var raiseScript = newScript(0, grantSource, raiseSource)

// RaiseToken implements [driver.TokenRaiser].
func (b *Backend) RaiseToken(ctx context.Context, held driver.Lease, least uint64) error {
	l, ok := held.(*lease)
	if !ok || l.backend != b {
		return fmt.Errorf("%w: redislock has no tokens to raise of a %T", driver.ErrInvalid, held)
	}
	c, _, err := b.run(ctx, raiseScript.on(l.keys.lock, l.keys.token).with(l.id, strconv.FormatUint(least, 10)))
	if err != nil {
		return err
	}
	return c.reply.checkOwned()
}

// errReplaced is why a Backend that another server may answer for has no incarnation.
var errReplaced = fmt.Errorf("%w: behind a Sentinel or in a Cluster a replica without all locks may take the server's place; "+
	"give the quorum clients of servers by themselves", driver.ErrInvalid)

// Incarnation implements [driver.Incarnated] for a server by itself, by INFO server.
func (b *Backend) Incarnation(ctx context.Context) (driver.Incarnation, error) {
	if b.unusable != nil {
		return driver.Incarnation{}, b.unusable
	}
	if b.router.failsOver {
		return driver.Incarnation{}, errReplaced
	}
	batcher, err := b.router.batcherFor(ctx, "lockgen", route{}, false)
	if err != nil {
		return driver.Incarnation{}, err
	}
	info, err := within(ctx, func() (*redis.StringCmd, error) {
		info := batcher.client.Info(ctx, "server")
		return info, info.Err()
	})
	if err != nil {
		return driver.Incarnation{}, fmt.Errorf("INFO server: %w", err)
	}
	facts := factsOf(info)
	seconds, err := strconv.Atoi(facts["uptime_in_seconds"])
	if err != nil || facts["run_id"] == "" {
		return driver.Incarnation{}, errors.New("INFO server does not say run_id and uptime_in_seconds")
	}
	// It is a difference of two clock readings in whole seconds.
	age := max(time.Duration(seconds-1)*time.Second, 0)
	return driver.Incarnation{ID: facts["run_id"], Age: age}, nil
}
