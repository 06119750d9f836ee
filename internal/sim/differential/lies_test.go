package differential

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// lie makes miniredis answer differently from Redis.
type lie struct {
	name string
	hook func(m *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) (done bool)
}

// answering returns a hook that gives a fixed answer to the command cmd if is returns true for its arguments.
func answering(cmd string, answer int, is func(args []string) bool) func(*miniredis.Miniredis, *server.Peer, string, []string) bool {
	return func(_ *miniredis.Miniredis, peer *server.Peer, got string, args []string) bool {
		if got != cmd || !is(args) {
			return false
		}
		peer.WriteInt(answer)
		return true
	}
}

func always([]string) bool       { return true }
func isLocks(args []string) bool { return slices.Contains(lockNames, args[0]) }
func heardOf(channel string) func(args []string) bool {
	return func(args []string) bool { return strings.HasPrefix(args[0], channel) }
}

// without returns a hook that removes a word from a command.
func without(cmd, word string) func(*miniredis.Miniredis, *server.Peer, string, []string) bool {
	return func(m *miniredis.Miniredis, peer *server.Peer, got string, args []string) bool {
		i := slices.Index(args, word)
		if got != cmd || i < 1 {
			return false
		}
		m.Server().Dispatch(peer, append([]string{cmd}, slices.Delete(slices.Clone(args), i, i+1)...))
		return true
	}
}

var lies = []lie{
	{"a lock gets no expiry", answering("PEXPIRE", 1, isLocks)},
	{"an expiry is never refused", answering("PEXPIRE", 1, func(args []string) bool { return len(args) > 1 && args[1] == "0" })},
	{"a release is not announced", answering("PUBLISH", 0, heardOf("redisson_lock__channel:"))},
	{"no message of a grant", answering("PUBLISH", 1, heardOf("lockgen:process:"))},
	{"a channel has no subscribers", answering("PUBSUB", 0, always)},
	{"each attempt takes a new place in the queue", without("ZADD", "NX")},
	{"the old token is not returned", without("SET", "GET")},
	{"a lock's field never disappears", answering("HEXISTS", 1, isLocks)},
	{"a tombstone is not found", answering("EXISTS", 0, func(args []string) bool {
		return len(args) == 1 && strings.HasPrefix(args[0], "lockgen:undone:")
	})},
	{"a granted waiter stays in the queue", answering("ZREM", 1, always)},
	{"unused tokens are not returned", answering("INCRBY", 7, always)},
	{"a hash is also a string", func(_ *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) bool {
		if cmd != "GET" || len(args) != 1 || strings.HasPrefix(args[0], "clock") {
			return false
		}
		peer.WriteNull()
		return true
	}},
	{"a lock lives a moment longer", func(m *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) bool {
		if cmd != "PEXPIRE" || !isLocks(args) || len(args) != 2 {
			return false
		}
		ttl, err := strconv.Atoi(args[1])
		if err != nil || ttl <= 0 || ttl%50 != 0 { // all ttls that tests draw are multiples of 50
			return false
		}
		m.Server().Dispatch(peer, []string{cmd, args[0], strconv.Itoa(ttl + 5)})
		return true
	}},
	{"scripts are never forgotten", func(_ *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) bool {
		if cmd != "SCRIPT" || args[0] != "FLUSH" {
			return false
		}
		peer.WriteOK()
		return true
	}},
}

// TestFindsLies checks that the comparison finds differences. Otherwise a run without a difference would prove nothing.
func TestFindsLies(t *testing.T) {
	load := scripts(t)
	p := newPair(t, load)
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			defer Repair(p.server, nil)
			Repair(p.server, func(peer *server.Peer, cmd string, args ...string) bool {
				return l.hook(p.server, peer, cmd, args)
			})
			for seed := range uint64(200) {
				steps, difference := play(t, p, func() source { return newDrawer(seed, load) })
				if difference != "" {
					t.Logf("seed %d, after %d commands:%v\n%s", seed, len(steps), steps[len(steps)-1:], difference)
					return
				}
			}
			t.Error("no difference was found")
		})
	}
}

// TestShrink checks that the reported sequence is short and leads to the difference.
func TestShrink(t *testing.T) {
	load := scripts(t)
	p := newPair(t, load)
	Repair(p.server, func(peer *server.Peer, cmd string, args ...string) bool { // to see this takes an undo and an acquire after it
		return answering("EXISTS", 0, func(args []string) bool {
			return len(args) == 1 && strings.HasPrefix(args[0], "lockgen:undone:")
		})(p.server, peer, cmd, args)
	})
	for seed := range uint64(200) {
		steps, difference := play(t, p, func() source { return newDrawer(seed, load) })
		if difference == "" {
			continue
		}
		shortest, difference := shrink(t, p, steps, difference)
		t.Logf("seed %d, %d commands, %d of them needed:%v\n%s", seed, len(steps), len(shortest), shortest, difference)
		if len(shortest) > 10 {
			t.Errorf("%d commands are left", len(shortest))
		}
		if _, difference := play(t, p, func() source { return &shortest }); difference == "" {
			t.Error("the reported sequence leads to no difference")
		}
		return
	}
	t.Error("no difference was found")
}
