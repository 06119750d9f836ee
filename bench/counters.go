package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// scripted lists the data commands that lock scripts call. The server counts them
// as if a client had sent them, so spent counts them only for a peer that sends them
// itself (peers.Peer.Direct). If a script uses a command that is missing here, the
// peer shows too many commands, not too few.
var scripted = []string{
	"set", "get", "del", "getrange", "exists", "pttl", "pexpire", "pexpireat", "time", "publish", "type",
	"incr", "incrby", "spublish", "pubsub|numsub", "pubsub|shardnumsub",
	"hset", "hget", "hdel", "hexists", "hincrby", "zadd", "zrem", "zrange", "zscore", "zcard",
}

// uncounted lists the commands that the harness sends in order to count, and those that
// a client sends once per connection. They are not part of the cost of a lock.
var uncounted = []string{"info", "dbsize", "flushall", "hello", "auth", "select", "client|setinfo", "client|setname", "client|tracking"}

// spending is the commands that a server has received and the CPU time that it has used.
type spending struct {
	commands, scripts float64       // Redis only
	cpu               time.Duration // 0 if the server's process is not known
}

func (s spending) less(o spending) spending {
	return spending{s.commands - o.commands, s.scripts - o.scripts, s.cpu - o.cpu}
}

// spent returns what the clients of p have cost the server since it started,
// according to the server's statistics.
func (b *bench) spent(ctx context.Context, p *peers.Peer) (s spending, err error) {
	if b.pid != 0 {
		if s.cpu, err = cpuOf(b.pid); err != nil {
			return s, err
		}
	}
	if b.server == nil {
		return s, nil
	}
	text, err := b.server.Info(ctx, "commandstats").Result()
	if err != nil {
		return s, fmt.Errorf("read the server's statistics: %w", err)
	}
	for line := range strings.Lines(text) {
		name, calls, ok := commandLine(line)
		if !ok || slices.Contains(uncounted, name) {
			continue
		}
		if !slices.Contains(scripted, name) || slices.Contains(p.Direct, name) {
			s.commands += calls
		}
		if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
			s.scripts += calls
		}
	}
	return s, nil
}

// commandLine reads "cmdstat_evalsha:calls=12,usec=…".
func commandLine(line string) (name string, calls float64, ok bool) {
	rest, ok := strings.CutPrefix(line, "cmdstat_")
	if !ok {
		return "", 0, false
	}
	name, rest, _ = strings.Cut(rest, ":calls=")
	number, _, _ := strings.Cut(rest, ",")
	calls, err := strconv.ParseFloat(number, 64)
	return name, calls, err == nil
}

// storage is the number of keys and the bytes that a Redis has in memory.
type storage struct{ keys, bytes float64 }

// stored returns the storage of the server, or zero if the server is not Redis.
func (b *bench) stored(ctx context.Context) (s storage, err error) {
	if b.server == nil {
		return s, nil
	}
	n, err := b.server.DBSize(ctx).Result()
	if err != nil {
		return s, err
	}
	text, err := b.server.Info(ctx, "memory").Result()
	if err != nil {
		return s, err
	}
	bytes, err := strconv.ParseFloat(infoField(text, "used_memory"), 64)
	return storage{float64(n), bytes}, err
}

// infoField returns the value of one line of INFO, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it fails only for other arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
