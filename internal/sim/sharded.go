package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// shards are the names of all servers. In odd versions of the membership the last one is not a member.
var shards = []string{"a", "b", "c", "d"}

func isSharded(engine string) bool { return engine == "sharded" }

// newSharded starts servers. The clock of the last one is behind, by less than the wait of a change.
func newSharded() engine {
	s := newSeveral(len(shards))
	s.version = 1
	last := len(shards) - 1
	s.servers[last].Jump(-time.Second)
	s.made = func(all []driver.Backend) whole {
		s.mu.Lock()
		o := sharded.Options{Version: s.version, Key: agreed, LongestTTL: longestTTL, Silence: silence, Probe: probe, Timeout: probe}
		s.mu.Unlock()
		members := map[string]driver.Backend{}
		for i, b := range all {
			members[shards[i]] = b
		}
		switch {
		case o.Version == 1:
			_ = all[last].Close()
			delete(members, shards[last])
		case o.Version%2 == 1:
			o.Leaving = map[string]driver.Backend{shards[last]: all[last]}
			delete(members, shards[last])
		}
		return sharded.New(members, o)
	}
	s.begin()
	return s
}

// newVersion makes the last server join or leave the membership, by one new process that replaces
// another. The other processes continue with the version that they have.
func newVersion(e *episode, f Fault, r *history.Fault) {
	s := e.engine.(*several)
	s.mu.Lock()
	s.version++
	r.Detail = fmt.Sprint("version ", s.version)
	s.mu.Unlock()
	go e.current(f.Process).close(e, 3*time.Second)
	e.spawn(f.Process)
	time.Sleep(drain)
}

// isOutdated reports whether v is about a process that newVersion has left with an older version.
// Such a process is refused as long as it lives.
func isOutdated(v history.Violation) bool {
	return v.Invariant == "I6" && strings.Contains(v.Text, "this process has version") && strings.HasSuffix(v.Text, "give it the later one")
}

// emptyMember stops a server for longer than Silence and starts it again without data.
func emptyMember(e *episode, f Fault, _ *history.Fault) {
	server := e.server(f)
	server.Stop()
	time.Sleep(silence + 2*probe + f.For)
	server.Start(true)
	time.Sleep(drain)
}
