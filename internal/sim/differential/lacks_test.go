package differential

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockgen/lockgen/internal/testserver"
)

// TestLacks checks that miniredis refuses what it can't do according to doc.go. If a new version can do
// some of it, the test fails: then correct doc.go and remove the imitation, if any.
func TestLacks(t *testing.T) {
	w := connect(t, miniredis.RunT(t).Addr())
	for _, command := range [][]string{
		{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "GET", "maxmemory-policy"}, {"INFO", "memory"}, {"INFO", "server"}, {"INFO", "replication"},
		{"ACL", "SETUSER", "alice"}, {"ACL", "WHOAMI"},
		{"CLIENT", "KILL", "TYPE", "normal"}, {"CLIENT", "PAUSE", "1"}, {"CLIENT", "ID"}, {"CLIENT", "SETINFO", "LIB-NAME", "x"}, {"CLIENT", "LIST"},
		{"REPLICAOF", "NO", "ONE"}, {"ROLE"}, {"READONLY"}, {"READWRITE"}, {"PSYNC", "?", "-1"},
		{"CLUSTER", "INFO"}, {"CLUSTER", "SETSLOT", "1", "STABLE"}, {"ASKING"}, {"MIGRATE", "h", "1", "k", "0", "1"},
		{"SPUBLISH", "c", "m"}, {"SSUBSCRIBE", "c"}, {"SUNSUBSCRIBE", "c"}, {"SENTINEL", "MASTERS"},
		{"SAVE"}, {"BGSAVE"}, {"BGREWRITEAOF"}, {"LASTSAVE"}, {"SHUTDOWN"}, {"DEBUG", "SLEEP", "0"}, {"MONITOR"}, {"SLOWLOG", "GET"}, {"LATENCY", "RESET"},
		{"SCRIPT", "KILL"}, {"FUNCTION", "LIST"}, {"FCALL", "f", "0"},
	} {
		expect(t, w, "", command...)
	}
	if v := must(t, w, "WAIT", "1", "0"); v.String() != ":0" { // Redis would wait without a limit
		t.Errorf("WAIT is answered %v", v)
	}
	if v := must(t, w, "CLUSTER", "SLOTS"); len(v.list) != 1 {
		t.Errorf("CLUSTER SLOTS is answered %v", v)
	}
	if v := must(t, w, "CLUSTER", "KEYSLOT", "lock"); v.String() != ":163" { // as for any key
		t.Errorf("CLUSTER KEYSLOT is answered %v", v)
	}
}

// TestScriptsDiffer checks the other claims of doc.go about scripts, by the replies of both servers.
func TestScriptsDiffer(t *testing.T) {
	redis, mini := connect(t, testserver.StartRedis(t).Addr()), connect(t, miniredis.RunT(t).Addr())
	for _, c := range []struct{ script, redis, mini string }{
		{"return type(redis.pcall('DEL', nil))", `"table"`, ""},
		{"return tostring(tonumber('1e3'))", `"1000"`, `"nil"`},
		{"return tostring(tonumber('-4e+12'))", `"-4000000000000"`, `"nil"`},
		{"return tostring(tonumber('1.5e3'))", `"1500"`, `"1500"`},
		{"return '1e3' + 0", ":1000", ":1000"},
		{"return tostring(tonumber('inf'))", `"inf"`, `"nil"`},
		{"return tostring(tonumber('1.5', 16))", `"nil"`, `"1.5"`},
		{"return tostring(tonumber('-1', 16) == 2 ^ 64)", `"true"`, `"false"`},
		{"return tostring(tonumber('ffffffffffff', 16) == 2 ^ 48 - 1)", `"true"`, `"true"`},
		{"return 1782907200123456 .. ''", `"1.7829072001235e+15"`, `"1782907200123456"`},
		{"redis.call('SET', 'k', 1782907200123456) return redis.call('GET', 'k')", `"1782907200123456"`, `"1782907200123456"`},
		{`return string.format('%s', 'a\0b')`, `"a"`, `"a\x00b"`},
		{"return tostring(cmsgpack ~= nil and bit ~= nil and struct ~= nil)", `"true"`, ""},
		{"redis.call('SET', 'k', 'v', 'PX', 9007199254740) return redis.call('PTTL', 'k') > 8e12", ":1", ":1"},
		{"redis.call('SET', 'k', 'v', 'PX', 10000000000000) return redis.call('PTTL', 'k') > 9e12", ":1", "nil"},
	} {
		for _, server := range []struct {
			name, want string
			at         *wire
		}{{"Redis", c.redis, redis}, {"miniredis", c.mini, mini}} {
			got := must(t, server.at, "EVAL", c.script, "0")
			if got.String() != server.want && (server.want != "" || got.kind != '-') {
				t.Errorf("%s\n%s replies %v, want %s", c.script, server.name, got, server.want)
			}
		}
	}
	unknown := []string{"EVALSHA", "0123456789012345678901234567890123456789", "-1"}
	if r, m := must(t, redis, unknown...), must(t, mini, unknown...); verdict(r.text) == "NOSCRIPT" || verdict(m.text) != "NOSCRIPT" {
		t.Errorf("EVALSHA with a wrong number of keys is answered %v by Redis, and %v by miniredis", r, m)
	}
	must(t, mini, "ZADD", "zset", "0.1", "a", "-4000000000000", "b", "-1782907200623", "c")
	for member, want := range map[string]string{"a": "0.1", "b": "-4e+12", "c": "-1782907200623"} {
		if v := must(t, mini, "ZSCORE", "zset", member); v.text != want {
			t.Errorf("a score reads %v, want %s", v, want)
		}
	}
	failed := must(t, mini, "EVAL", "\nredis.call('HGET', 'zset', 'f')", "0").text
	if !strings.HasPrefix(failed, "ERR Error compiling script (new function): :2: WRONGTYPE ") {
		t.Errorf("an error in a script reads %s", failed)
	}
}

// TestInstants checks expiry during a script that runs for a while. At Redis no key expires while a script runs.
func TestInstants(t *testing.T) {
	redis := connect(t, testserver.StartRedis(t).Addr())
	const slow = "redis.call('SET', 'k', 'v', 'PX', 1) local n = 0 for i = 1, 1000000 do n = n + i end return redis.call('EXISTS', 'k')"
	if v := must(t, redis, "EVAL", slow, "0"); v.String() != ":1" {
		t.Errorf("a key expired while the script ran: %v", v)
	}

	m := miniredis.RunT(t)
	mini := connect(t, m.Addr())
	m.ClockTTL(true)
	if v := must(t, mini, "EVAL", slow, "0"); v.String() != ":0" {
		t.Errorf("at miniredis it did not expire: %v", v)
	}
	now := epoch
	m.SetTime(now)
	pttl := func(at time.Duration, want string) {
		t.Helper()
		m.SetTime(now.Add(at))
		if v := must(t, mini, "PTTL", "k"); v.String() != want {
			t.Errorf("%v after the beginning PTTL is %v, want %s", at, v, want)
		}
	}
	must(t, mini, "SET", "k", "v", "PX", "10000")
	pttl(-time.Hour, ":10000") // at Redis an hour more
	pttl(-time.Hour+9*time.Second, ":1000")
	pttl(0, ":-2") // the clock is right again; at Redis the key would exist for 10 s more
	must(t, mini, "SET", "k", "v", "PX", "2")
	pttl(1500*time.Microsecond, ":0")
	pttl(2*time.Millisecond, ":-2") // at Redis in the millisecond after
}

// TestSilentSubscriber checks that a subscriber that does not read stops the whole server as soon as the
// buffers between the two are full. Here there is no buffer.
func TestSilentSubscriber(t *testing.T) {
	m := miniredis.NewMiniRedis()
	defer m.Close()
	listener, err := m.Dial()
	if err != nil {
		t.Fatal(err)
	}
	subscriber := &wire{conn: listener}
	subscriber.add("SUBSCRIBE", "channel")
	if err := subscriber.send(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if _, err := listener.Read(buffer); err != nil {
		t.Fatal(err)
	}
	published := make(chan struct{})
	go func() {
		defer close(published)
		for range 3 {
			m.Publish("channel", "m")
		}
	}()
	select {
	case <-published:
		t.Error("all messages were published although the subscriber did not read")
	case <-time.After(50 * time.Millisecond):
	}
	go func() {
		for err == nil {
			_, err = listener.Read(buffer)
		}
	}()
	<-published
}
