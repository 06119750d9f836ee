package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// unfitError says why a server takes no locks of ours.
type unfitError struct{ why string }

func (e *unfitError) Error() string { return e.why }

// examinedFor is how long a connection is used until the server is asked again.
const examinedFor = 10 * time.Minute

// examine returns the OnConnect of connections on which locks are taken. It calls
// theirs, the caller's, and then asks the server about itself: each connection may lead
// to another server than the one before. With refuseEvicting it fails if the server may
// evict locks.
func (b *batcher) examine(theirs func(context.Context, *redis.Conn) error, refuseEvicting bool) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		if theirs != nil {
			if err := theirs(ctx, conn); err != nil {
				return err
			}
		}
		// Two commands, because servers before 7.0 answer for one section each.
		pipe := conn.Pipeline()
		memory, server := pipe.Info(ctx, "memory"), pipe.Info(ctx, "server")
		if _, err := pipe.Exec(ctx); err != nil && !isAnswer(err) {
			// %v: of an error that wraps another, go-redis returns that one alone.
			return fmt.Errorf("the server did not answer INFO (a proxy may not know it): %v", err)
		}
		if err := memory.Err(); redis.HasErrorPrefix(err, "NOAUTH ") {
			return &unfitError{err.Error()} // a script of many words would get another answer
		}
		facts, about := factsOf(memory), factsOf(server)
		b.allKeys.Store(hasAllKeys(facts, about))
		b.examined.Store(true)
		if about["redis_mode"] == "cluster" && !b.bySlot {
			if err := checkAllSlots(ctx, conn); err != nil {
				return err
			}
		}
		if refuseEvicting {
			return checkEviction(facts)
		}
		return nil
	}
}

// factsOf reads what INFO answered: nothing if the server does not say, because we
// have no right to ask, or it knows no such command.
func factsOf(info *redis.StringCmd) map[string]string {
	facts := map[string]string{}
	if info.Err() != nil {
		return facts
	}
	for line := range strings.Lines(info.Val()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[strings.Replace(name, "server_mode", "redis_mode", 1)] = value // as Valkey calls it
		}
	}
	return facts
}

// hasAllKeys reports whether the server's INFO is that of one that has all keys. A
// proxy may send a command to the server of its first key, and then there would be
// locks where nobody looks for them. Proxies that answer INFO say that they are a
// cluster (Envoy), or nothing about memory (Camellia); the others, and the nodes of
// a Cluster, refuse keys that are not in the same slot.
func hasAllKeys(memory, server map[string]string) bool {
	return memory["maxmemory_policy"] != "" && server["redis_mode"] == "standalone" && server["run_id"] != ""
}

// isCrossSlot reports whether a server or a proxy refused a command because its keys
// may be at several servers.
func isCrossSlot(err error) bool { return err != nil && strings.Contains(err.Error(), "same slot") }

// checkEviction returns an error if the server may evict locks by its configuration, also
// if its memory has no limit yet: that may be set at any time.
func checkEviction(memory map[string]string) error {
	if policy := memory["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		return &unfitError{"the server may evict locks: its maxmemory-policy is " + policy + "; set noeviction, " +
			"or accept it by redislock.Options.AllowEviction"}
	}
	return nil
}

// pingKey can't be the name of a lock: a lock's name has no empty pair of braces.
const pingKey = "lockgen:ping:{}"

// pingScript writes as a lock does, to a key that does not exist: so it changes nothing, and nobody
// has to store or copy it.
var pingScript = newScript(0, "call('SET', KEYS[1], '', 'XX', 'PX', 1)\nreturn 1\n")

// Ping implements [driver.Pinger]: it asks the server by which locks would be taken,
// in a Cluster the one of some slot, whether it is fit for them and would take a write.
func (b *Backend) Ping(ctx context.Context) error {
	if b.unusable != nil {
		return b.unusable
	}
	c := pingScript.on(pingKey)
	c.takes, c.readOnly = true, true
	_, _, err := b.run(ctx, c)
	return err
}
