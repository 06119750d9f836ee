package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

// probedSlots is how many keys tell whether a server has all slots. One that has a third of
// the slots passes once in forty million times.
const probedSlots = 16

const useClusterClient = "a node of a Redis Cluster takes a part of the keys alone: give redislock.New a client that redis.NewClusterClient returns, " +
	"or Open a URL with ?cluster=true"

// checkAllSlots returns an error if the server refuses keys because another node of its Cluster has
// them. A proxy to a Cluster also says that it is a cluster, but refuses none.
func checkAllSlots(ctx context.Context, conn interface{ Pipeline() redis.Pipeliner }) error {
	pipe := conn.Pipeline()
	for i := range probedSlots {
		pipe.Exists(ctx, fmt.Sprint("lockgen:probe:", i))
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !isAnswer(err) {
		return err
	}
	for _, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "MOVED ") {
			return &unfitError{useClusterClient}
		}
	}
	return nil
}

// withAdvice adds to err the server's address, and what a person can do about it. batcher is
// nil for an error of b.client, which lists locks.
func (b *Backend) withAdvice(batcher *batcher, err error) error {
	err = wrapConflict(err)
	text := err.Error()
	if batcher != nil && batcher.client.Options().Addr != sentinelAddr && !strings.Contains(text, batcher.client.Options().Addr) {
		err = fmt.Errorf("redis at %s: %w", batcher.client.Options().Addr, err)
	}
	var unfit *unfitError
	reached := isAnswer(err) || errors.Is(err, errNoAnswer) || errors.Is(err, driver.ErrClosed) || errors.As(err, &unfit)
	switch {
	case b.router.cluster() == nil && strings.HasPrefix(text, "MOVED "):
		return fmt.Errorf("%w; %s", err, useClusterClient)
	case strings.Contains(text, "NOAUTH "), strings.Contains(text, "unauthenticated"):
		return fmt.Errorf("%w; the server wants a password (NOAUTH): set Username and Password of the client, or write them into the URL", err)
	case strings.Contains(text, "WRONGPASS "):
		return fmt.Errorf("%w; check Username and Password of the client, or those of the URL", err)
	case b.tls && !reached && !strings.Contains(text, "certificate"):
		return fmt.Errorf("%w; the client speaks TLS: if the port is not one for that, use another, or no TLSConfig (redis:// and not rediss://)", err)
	case errors.Is(err, io.EOF), strings.Contains(text, "connection reset"), strings.Contains(text, "invalid reply"), strings.Contains(text, "can't parse"):
		return fmt.Errorf("%w; if the port is one for TLS, set TLSConfig of the client (rediss:// and not redis://)", err)
	}
	return err
}

// Servers implements [driver.Located]: it returns the addresses in the caller's client, which
// are those of the Sentinels if it has some.
func (b *Backend) Servers() []string {
	if cluster := b.router.cluster(); cluster != nil {
		return cluster.Options().Addrs
	}
	if client, ok := b.client.(*redis.Client); ok && !b.router.failsOver && b.unusable == nil {
		return []string{client.Options().Addr}
	}
	return b.sentinels
}

// wrapConflict wraps an answer about another kind of value at the key in ErrConflict.
func wrapConflict(err error) error {
	if text := err.Error(); strings.Contains(text, "WRONGTYPE") || strings.HasPrefix(text, "CONFLICT ") {
		return fmt.Errorf("%w: %w", driver.ErrConflict, err)
	}
	return err
}
