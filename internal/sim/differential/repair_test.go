package differential

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockgen/lockgen/internal/testserver"
)

// TestRepair checks that Repair is needed, and that it does what Redis does.
func TestRepair(t *testing.T) {
	bare, repaired := miniredis.RunT(t), miniredis.RunT(t)
	Repair(repaired, nil)
	redis, plain, mended := connect(t, testserver.StartRedis(t).Addr()), connect(t, bare.Addr()), connect(t, repaired.Addr())

	const fails = "return redis.call('HGET', 'string', 'f')"
	for _, w := range []*wire{redis, plain, mended} {
		must(t, w, "SET", "string", "v")
		if v := must(t, w, "EVAL", fails, "0"); verdict(v.text) != "WRONGTYPE" {
			t.Errorf("the script is answered %v", v)
		}
	}
	hash := must(t, connect(t, testserver.StartRedis(t).Addr()), "SCRIPT", "LOAD", fails).text
	for _, known := range []struct {
		at   *wire
		want string
	}{{redis, "WRONGTYPE"}, {mended, "WRONGTYPE"}, {plain, "NOSCRIPT"}} {
		if got := verdict(must(t, known.at, "EVALSHA", hash, "0").text); got != known.want {
			t.Errorf("a script that failed is answered %s the second time, want %s", got, known.want)
		}
	}

	if v := must(t, plain, "INFO", "memory"); v.kind != '-' {
		t.Errorf("miniredis now has INFO memory: %v", v)
	}
	for _, section := range []string{"memory", "server"} {
		facts, want := factsOf(must(t, mended, "INFO", section)), factsOf(must(t, redis, "INFO", section))
		for _, name := range []string{"redis_mode", "maxmemory", "maxmemory_policy"} {
			if want[name] != "" && facts[name] != want[name] {
				t.Errorf("%s is %q, at Redis %q", name, facts[name], want[name])
			}
		}
		if id := want["run_id"]; id != "" && !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(facts["run_id"]) {
			t.Errorf("run_id is %q, at Redis %q", facts["run_id"], id)
		}
	}
}

// factsOf parses the reply of INFO.
func factsOf(info value) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(info.text) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = text
	}
	return facts
}

// TestRepairAsksFirst checks that the caller's hook is called first, also for commands in scripts.
func TestRepairAsksFirst(t *testing.T) {
	m := miniredis.RunT(t)
	var heard []string
	Repair(m, func(peer *server.Peer, cmd string, _ ...string) bool {
		heard = append(heard, cmd)
		if cmd == "INFO" || cmd == "PTTL" {
			peer.WriteError("ERR not now")
			return true
		}
		return false
	})
	w := connect(t, m.Addr())
	expect(t, w, "ERR not now", "INFO")
	expect(t, w, "ERR not now", "EVAL", "return redis.pcall('PTTL', 'key')", "0")
	if got := strings.Join(heard, " "); got != "INFO EVAL PTTL" {
		t.Errorf("the hook was called for %s", got)
	}
	expect(t, w, "", "EVAL", "return redis.call('EVAL', 'return 1', '0')", "0")
}
