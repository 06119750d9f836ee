package differential

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// lie makes miniredis answer otherwise than Redis does.
type lie struct {
	name string
	hook func(m *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) (done bool)
}

// answering returns the hook that gives one command one answer, where is says so.
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

// without returns the hook that leaves a word out of a command.
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
	{"a grant is not heard of", answering("PUBLISH", 1, heardOf("lockgen:process:"))},
	{"nobody listens", answering("PUBSUB", 0, always)},
	{"a place in the queue is taken anew each time", without("ZADD", "NX")},
	{"the old token is not told", without("SET", "GET")},
	{"a field of a lock is never gone", answering("HEXISTS", 1, isLocks)},
	{"a tombstone is not seen", answering("EXISTS", 0, func(args []string) bool {
		return len(args) == 1 && strings.HasPrefix(args[0], "lockgen:undone:")
	})},
	{"who is granted a lock stays in line", answering("ZREM", 1, always)},
	{"unused tokens are not given back", answering("INCRBY", 7, always)},
	{"a hash is a string too", func(_ *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) bool {
		if cmd != "GET" || len(args) != 1 || strings.HasPrefix(args[0], "clock") {
			return false
		}
		peer.WriteNull()
		return true
	}},
	{"a lock stands for a moment longer", func(m *miniredis.Miniredis, peer *server.Peer, cmd string, args []string) bool {
		if cmd != "PEXPIRE" || !isLocks(args) || len(args) != 2 {
			return false
		}
		ttl, err := strconv.Atoi(args[1])
		if err != nil || ttl <= 0 || ttl%50 != 0 { // as all are that tests draw
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

// A test that finds no difference proves something if it finds those that there are.
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

// The sequence that is shown is short, and leads to the difference.
func TestShrink(t *testing.T) {
	load := scripts(t)
	p := newPair(t, load)
	Repair(p.server, func(peer *server.Peer, cmd string, args ...string) bool { // which takes an undo, and an acquire after it
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
			t.Error("no difference after what was said to lead to it")
		}
		return
	}
	t.Error("no difference was found")
}
