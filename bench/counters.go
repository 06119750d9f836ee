package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/peers"
)

// scripted are the data commands that lock scripts call. The server counts them
// as if a client had sent them, so they count only for a peer that does so
// (peers.Peer.Direct). A script that begins to use another one shows as a peer
// with too many commands, not too few.
var scripted = []string{
	"set", "get", "del", "getrange", "exists", "pttl", "pexpire", "pexpireat", "time", "publish",
	"hset", "hget", "hdel", "hexists", "hincrby", "zadd", "zrem", "zrange", "zscore", "zcard",
}

// uncounted is what the harness sends to count, and what clients send once for
// a connection, which is no cost of a lock.
var uncounted = []string{"info", "hello", "auth", "select", "client|setinfo", "client|setname", "client|tracking"}

// commands returns how many commands the server has had from clients of p since
// it started, as far as its statistics tell.
func commands(ctx context.Context, server *redis.Client, p *peers.Peer) (int64, error) {
	text, err := server.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("read the server's statistics: %w", err)
	}
	total := int64(0)
	for line := range strings.Lines(text) {
		name, calls, ok := commandLine(line)
		if !ok || slices.Contains(uncounted, name) {
			continue
		}
		if !slices.Contains(scripted, name) || slices.Contains(p.Direct, name) {
			total += calls
		}
	}
	return total, nil
}

// commandLine reads "cmdstat_evalsha:calls=12,usec=…".
func commandLine(line string) (name string, calls int64, ok bool) {
	rest, ok := strings.CutPrefix(line, "cmdstat_")
	if !ok {
		return "", 0, false
	}
	name, rest, _ = strings.Cut(rest, ":calls=")
	number, _, _ := strings.Cut(rest, ",")
	calls, err := strconv.ParseInt(number, 10, 64)
	return name, calls, err == nil
}
