package sim

import (
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockgen/lockgen/internal/sim/differential"
)

// before is called by miniredis for each command, including commands of scripts. If a fault forbids
// the command, before answers with the error of a real server. It reports whether it has answered.
func (r *Redis) before(peer *server.Peer, cmd string, _ ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	nested := differential.IsNested(peer)
	if !nested {
		r.wrote = false
	}
	switch {
	case !nested && r.refusal != "":
		peer.WriteError(r.refusal)
	case r.denied[cmd] && nested:
		peer.WriteError(differential.NoPermissionInScript)
	case r.denied[cmd]:
		peer.WriteError(fmt.Sprintf(differential.NoPermission, strings.ToLower(cmd)))
	case r.outOf && differential.NeedsMemory(cmd) && !(nested && r.wrote): // a script that has written may continue
		peer.WriteError(differential.OOM)
	case cmd == "INFO" && r.lives > 0:
		peer.WriteBulk(differential.Standalone + r.life())
	default:
		r.wrote = r.wrote || nested && differential.Writes(cmd)
		return false
	}
	return true
}
