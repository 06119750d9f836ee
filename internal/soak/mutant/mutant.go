package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is the runtime with one mistake in it, of those that locks in Redis are
// known to make.
type mutant struct {
	name    string
	mistake string
	patches []patch
	faults  []string // that bring it out; nil is all, with calm episodes among them
}

// patch replaces a piece of code. The piece is as short as can be, so that it
// survives changes around it.
type patch struct{ file, old, new string }

const (
	redislock = "runtime/backends/redislock/"
	redisGo   = redislock + "redislock.go"
)

var mutants = []mutant{
	{
		name:    "counted",
		mistake: "a count at the server (HINCRBY) instead of acquisition ids",
		patches: []patch{
			{redislock + "acquire.lua", "'HSET', KEYS[1], ARGV[1], '1')", "'HINCRBY', KEYS[1], ARGV[1], '1')"},
			{redislock + "release.lua", "local freed = call('HDEL', KEYS[1], ARGV[1])", `local freed = 0
if call('HEXISTS', KEYS[1], ARGV[1]) == 1 and call('HINCRBY', KEYS[1], ARGV[1], -1) <= 0 then
  freed = call('HDEL', KEYS[1], ARGV[1])
end`},
		},
		faults: []string{"swallow-acquire", "swallow-any"},
	},
	{
		name:    "unowned",
		mistake: "a release that does not check the owner",
		patches: []patch{{redislock + "release.lua", "'HDEL', KEYS[1], ARGV[1])", "'DEL', KEYS[1])"}},
		faults:  []string{"pause-client", "delay-requests", "swallow-acquire", "late-acquire"},
	},
	{
		name:    "recreate",
		mistake: "a renewal that makes the lock anew",
		patches: []patch{{redislock + "renew.lua", "redis.pcall('HEXISTS', KEYS[i], ARGV[i]) == 1", "redis.pcall('HSET', KEYS[i], ARGV[i], 1)"}},
		faults:  []string{"pause-client", "delay-requests", "stop-server", "force-unlock"},
	},
	{
		name:    "deadline",
		mistake: "a deadline that counts from the reply",
		patches: []patch{
			{redisGo, "l.extend(c.sent, ", "l.extend(lock.Now(), "},
			{redislock + "renew.go", ".extend(sent, ", ".extend(lock.Now(), "},
		},
		faults: []string{"delay-replies", "stop-server", "pause-client"},
	},
	{
		name:    "deaf",
		mistake: "no poll behind the notifications",
		patches: []patch{{"runtime/contend.go", "d := pollLimit - rand.N(pollLimit/10)", `d := pollLimit - rand.N(pollLimit/10)
	if d > 0 {
		return time.Hour
	}`}},
		faults: []string{"kill-client", "kill-pubsub", "refuse", "pause-client"},
	},
	{
		name:    "callerctx",
		mistake: "a release under the caller's context, and no more",
		patches: []patch{
			{"runtime/lease.go", "err := lk.Release(rc, ", "_ = rc\n\terr := lk.Release(ctx, "},
			{"runtime/lease.go", "if err == nil || isLost(err) {", "if err == nil || isLost(err) || ctx.Err() != nil {"},
		},
	},
	{
		name:    "tokens",
		mistake: "tokens counted by each process",
		patches: []patch{
			{redisGo, "first: uint64(c.reply.number)", "first: ownTokens.Add(1 << 20)"},
			{redisGo, "func newBackend(", "var ownTokens atomic.Uint64\n\nfunc newBackend("},
		},
	},
	{
		name:    "wallclock",
		mistake: "an expiry by the client's wall clock (PEXPIREAT)",
		patches: []patch{
			{redislock + "acquire.lua", "'PEXPIRE', KEYS[1], ARGV[2])", "'PEXPIREAT', KEYS[1], ARGV[2])"},
			{redisGo, "{a.ID, strconv.FormatInt(a.TTL.Milliseconds(), 10)}", "{a.ID, strconv.FormatInt(expiry(a.TTL), 10)}"},
			{redisGo, "func newBackend(", `func expiry(ttl time.Duration) int64 {
	wrong, _ := time.ParseDuration(os.Getenv("LOCKGEN_SOAK_SKEW"))
	return time.Now().Add(wrong + ttl).UnixMilli()
}

func newBackend(`},
			{redisGo, "\t\"strconv\"\n", "\t\"os\"\n\t\"strconv\"\n"},
		},
	},
	{
		name:    "tombstone",
		mistake: "an undo that leaves no tombstone",
		patches: []patch{{redislock + "release.lua", "if ARGV[5] and", "if false and"}},
		faults:  []string{"late-acquire", "delay-requests", "client-pause"},
	},
	{
		name:    "waiter",
		mistake: "a waiter that gives up and stays in the line",
		patches: []patch{{"runtime/entry.go", "if w.queued {\n\t\te.remove(w)\n", "if w.queued {\n"}},
	},
	{
		name:    "ttl",
		mistake: "a ttl of nothing accepted",
		patches: []patch{{"runtime/policy.go", "p.TTL != 0 && p.TTL < MinTTL", "p.TTL != 0 && p.TTL < -MinTTL"}},
	},
	{
		name:    "pool",
		mistake: "renewals that wait behind the caller's own traffic",
		patches: []patch{
			{redisGo, "case *redis.Client:\n", "case *redis.Client:\n\t\tcallers = c\n"},
			{redisGo, "func newBackend(", "var callers *redis.Client\n\nfunc newBackend("},
			{redislock + "renew.go", "pipe := l.client.Pipeline()", "pipe := callers.Pipeline()"},
		},
	},
}

// apply makes the mistake in the tree at root. A piece that is not there, or
// whose place is not plain, is an error: the mutant tests nothing then.
func (m mutant) apply(root string) error {
	for _, p := range m.patches {
		path := filepath.Join(root, p.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), p.old) {
			return fmt.Errorf("mutant %s no longer applies: %s has no %q", m.name, p.file, p.old)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), p.old, p.new)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
