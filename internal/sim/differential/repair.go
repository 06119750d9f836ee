package differential

import (
	"bufio"
	"io"
	"reflect"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Standalone is what a Redis that has all keys says of itself, as far as redislock
// reads it.
const Standalone = "redis_mode:standalone\r\n" +
	"run_id:5a1edeadbeef5a1edeadbeef5a1edeadbeef5a1e\r\n" +
	"maxmemory:0\r\n" +
	"maxmemory_policy:noeviction\r\n"

// loader is the name of connections that Repair makes. No client's has a blank.
const loader = "of Repair"

// Repair makes m, which must have been started, answer as Redis does in two cases where
// it does not: INFO says that the server stands alone and evicts nothing, whatever
// section it is asked for; and a script that EVAL was sent is known from then on, also
// if it failed.
//
// It sets m's only hook. The caller's own is first, unless it is nil: it is called for
// each command, also for those of scripts, and returns whether it has answered.
func Repair(m *miniredis.Miniredis, first server.Hook) {
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		if peer.ClientName == loader {
			return false
		}
		if first != nil && first(peer, cmd, args...) {
			return true
		}
		switch {
		case cmd == "INFO":
			peer.WriteBulk(Standalone)
			return true
		case cmd == "EVAL" && len(args) > 1 && !IsNested(peer): // else m is locked
			p := server.NewPeer(bufio.NewWriter(io.Discard))
			p.ClientName = loader
			m.Server().Dispatch(p, []string{"SCRIPT", "LOAD", args[0]})
		}
		return false
	})
}

// IsNested reports whether a command is a script's. miniredis keeps that to itself.
func IsNested(peer *server.Peer) bool {
	return peer.Ctx != nil && reflect.ValueOf(peer.Ctx).Elem().FieldByName("nested").Bool()
}
