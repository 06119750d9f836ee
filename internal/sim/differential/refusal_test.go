package differential

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockgen/lockgen/internal/testserver"
)

// is70 reports whether w is connected to a Redis 7.0, which has the texts of the constants. For other
// versions the tests only check that they refuse.
func is70(t *testing.T, w *wire) bool {
	t.Helper()
	v := must(t, w, "INFO", "server")
	return strings.Contains(v.text, "\nredis_version:7.0.") && !strings.Contains(v.text, "valkey")
}

// refused checks that a command is refused with text, or with any text if text is "", and that in a
// script redis.pcall and redis.call refuse it with inScript.
func refused(t *testing.T, w *wire, text, inScript string, command ...string) {
	t.Helper()
	expect(t, w, text, command...)
	quoted := "'" + strings.Join(command, "', '") + "'"
	expect(t, w, inScript, "EVAL", "return redis.pcall("+quoted+").err and redis.pcall("+quoted+")", "0")
	script := "\n\nredis.call(" + quoted + ")"
	if inScript != "" {
		sum := sha1.Sum([]byte(script))
		inScript += fmt.Sprintf(InScript, hex.EncodeToString(sum[:]), 3)
	}
	expect(t, w, inScript, "EVAL", script, "0")
}

// textsOf returns the constants for a Redis 7.0, and "" for other versions.
func textsOf(t *testing.T, w *wire, constants ...string) []string {
	t.Helper()
	if !is70(t, w) {
		t.Log("this is not Redis 7.0: its texts are not compared")
		return make([]string, len(constants))
	}
	return constants
}

func TestOOM(t *testing.T) {
	w := connect(t, testserver.StartRedis(t).Addr())
	must(t, w, "HSET", "hash", "f", "v")
	must(t, w, "CONFIG", "SET", "maxmemory", "1")
	text := textsOf(t, w, OOM)[0]
	for _, command := range [][]string{
		{"SET", "key", "v"}, {"SET", "none", "v", "XX"}, {"HSET", "hash", "f", "v"}, {"HINCRBY", "hash", "n", "1"},
		{"INCRBY", "n", "1"}, {"ZADD", "zset", "XX", "1", "m"},
	} {
		refused(t, w, text, text, command...)
		if !NeedsMemory(command[0]) {
			t.Errorf("NeedsMemory(%s) is false", command[0])
		}
	}
	for _, before := range []struct {
		commands string
		ends     bool // whether the commands end the refusals
	}{
		{"redis.call('HDEL', 'none', 'f')", true},
		{"redis.call('DEL', 'none')", true},
		{"redis.call('PEXPIRE', 'none', 1)", true},
		{"redis.call('ZREM', 'none', 'm')", true},
		{"redis.call('ZREMRANGEBYSCORE', 'none', 0, 1)", true},
		{"redis.pcall('ZREM', 'hash', 'm')", true}, // WRONGTYPE
		{"redis.pcall('ZREM', 'hash')", false},     // the wrong number of arguments
		{"redis.pcall('SET', 'key', 'v')", false},  // OOM
		{"redis.pcall('SET', 'key', 'v') redis.call('DEL', 'none')", true},
		{"redis.call('EXISTS', 'hash')", false},
		{"redis.call('PUBLISH', 'channel', 'm')", false},
		{"redis.call('PUBSUB', 'NUMSUB', 'channel')", false},
	} {
		v := must(t, w, "EVAL", before.commands+" return redis.pcall('HSET', 'hash', 'f', 'v')", "0")
		if ended := v.kind == ':'; ended != before.ends || !ended && text != "" && v.text != text {
			t.Errorf("after %s a script may write: %t, want %t; the reply is %v", before.commands, ended, before.ends, v)
		}
	}
}

func TestNoPermission(t *testing.T) {
	server := testserver.StartRedis(t)
	admin, alice := connect(t, server.Addr()), connect(t, server.Addr())
	grant := func(rights ...string) {
		t.Helper()
		if v := must(t, admin, append([]string{"ACL", "SETUSER", "alice"}, rights...)...); v.kind == '-' {
			t.Fatal(v)
		}
	}
	grant("on", ">secret", "allkeys", "allchannels", "+@all", "-pexpire", "-publish", "-hset")
	must(t, admin, "HSET", "hash", "f", "v")
	must(t, alice, "AUTH", "alice", "secret")
	texts := textsOf(t, admin, NoPermission, NoPermissionInScript, NoKey, NoKeyInScript, NoChannel, NoChannelInScript)
	for _, command := range [][]string{{"PEXPIRE", "hash", "1"}, {"PUBLISH", "channel", "m"}, {"HSET", "hash", "f", "v"}} {
		text := strings.Replace(texts[0], "%s", strings.ToLower(command[0]), 1)
		refused(t, alice, text, texts[1], command...)
	}
	grant("resetkeys", "resetchannels", "~mine", "&mine", "+@all")
	refused(t, alice, texts[2], texts[3], "HDEL", "hash", "f")
	refused(t, alice, texts[4], texts[5], "PUBLISH", "channel", "m")
	expect(t, alice, texts[4], "SUBSCRIBE", "channel")
	expect(t, alice, texts[2], "EVAL", "return 1", "1", "hash")

	// The refusal does not count as a write of the script, and comes before the refusal for memory.
	must(t, admin, "CONFIG", "SET", "maxmemory", "1")
	expect(t, alice, texts[3], "EVAL", "return redis.pcall('HSET', 'hash', 'f', 'v')", "0")
	oom := textsOf(t, admin, OOM)[0]
	expect(t, alice, oom, "EVAL", "redis.pcall('HDEL', 'hash', 'f') return redis.pcall('HSET', 'mine', 'f', 'v')", "0")
}

// TestCommands checks that commands agrees with the server's data, and has all commands that our
// scripts use.
func TestCommands(t *testing.T) {
	w := connect(t, testserver.StartRedis(t).Addr())
	used := map[string]bool{"HINCRBY": true, "DEL": true}
	for _, text := range scripts(t) {
		for _, found := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(text, -1) {
			used[found[1]] = true
		}
	}
	if len(used) < 15 {
		t.Errorf("the scripts use only %v, want more", used)
	}
	for command := range used {
		v := must(t, w, "COMMAND", "INFO", command)
		flags := v.list[0].list[2].String()
		writes, needs := strings.Contains(flags, "+write"), strings.Contains(flags, "+denyoom")
		if Writes(command) != writes || NeedsMemory(command) != needs {
			t.Errorf("%s: writes %t, needs memory %t, but the server's flags are %s", command, Writes(command), NeedsMemory(command), flags)
		}
	}
	for command := range commands {
		if !used[command] {
			t.Errorf("no script uses %s", command)
		}
	}
	if slices.Contains([]bool{Writes("GET"), NeedsMemory("GET")}, true) {
		t.Error("GET writes")
	}
}
