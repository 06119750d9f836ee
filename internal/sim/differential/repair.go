package differential

import (
	"bufio"
	"io"
	"reflect"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Standalone has the lines of INFO of a Redis outside of a Cluster that redislock
// reads.
const Standalone = "redis_mode:standalone\r\n" +
	"run_id:5a1edeadbeef5a1edeadbeef5a1edeadbeef5a1e\r\n" +
	"maxmemory:0\r\n" +
	"maxmemory_policy:noeviction\r\n"

// loader is the name of connections that Repair makes. No client has a name with a space.
const loader = "of Repair"

// Repair makes m, which must have been started, answer as Redis does in two cases where
// it does not: INFO says that the server is standalone and evicts nothing, for every
// section; and a script that was sent by EVAL is known from then on, even
// if it failed.
//
// It sets m's only hook. If first is not nil, it is called before that for each command,
// including commands of scripts, and reports whether it has answered.
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
		case cmd == "EVAL" && len(args) > 1 && !IsNested(peer): // in a script m's mutex is locked
			p := server.NewPeer(bufio.NewWriter(io.Discard))
			p.ClientName = loader
			m.Server().Dispatch(p, []string{"SCRIPT", "LOAD", args[0]})
		}
		return false
	})
}

// IsNested reports whether a command was sent by a script. miniredis does not export that.
func IsNested(peer *server.Peer) bool {
	return peer.Ctx != nil && reflect.ValueOf(peer.Ctx).Elem().FieldByName("nested").Bool()
}
