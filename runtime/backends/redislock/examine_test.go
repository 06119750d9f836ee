package redislock

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// wholeServer is the INFO of a server that has all keys.
const wholeServer = "maxmemory:0\r\nmaxmemory_policy:noeviction\r\nredis_mode:standalone\r\nrun_id:5f9c\r\n"

// servers has the INFO of several kinds of servers. single says whether one command may have keys of
// unrelated locks there.
var servers = map[string]struct {
	info   string
	single bool
}{
	"one server":                       {answerOf(wholeServer), true},
	"one of Valkey":                    {answerOf(strings.Replace(wholeServer, "redis_mode", "server_mode", 1)), true},
	"a proxy that knows no INFO":       {"-ERR unknown command\r\n", false},
	"a proxy that says little":         {answerOf("redis_mode:standalone\r\nrun_id:5f9c\r\nuptime:7\r\n"), false},
	"a proxy to several, as Envoy":     {answerOf(strings.Replace(wholeServer, "standalone", "cluster", 1)), false},
	"a proxy that asks one of several": {answerOf("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"), false},
}

// A server that may not have all keys gets one command for each lock, to acquire, to
// renew and to release it. A proxy may look only at the first key.
func TestTogetherOnlyAtOneServer(t *testing.T) {
	t.Parallel()
	for name, c := range servers {
		var together, single atomic.Int64
		s := batcherTo(t, false, func(args []string) string {
			switch {
			case args[0] == "info":
				return c.info
			case args[1] == togetherScript.hash:
				together.Add(1)
				return "*2\r\n:1\r\n:1\r\n"
			}
			single.Add(1)
			return freed
		})
		do(s, acquireCall(t, "a", newID()))
		calls := []*call{acquireCall(t, "a", newID()), releaseCall(t, "b", newID(), releaseArgs{})}
		do(s, calls...)
		for _, c := range calls {
			if c.err != nil || c.reply.number() != 1 {
				t.Errorf("%s: %v, %v", name, c.reply, c.err)
			}
		}
		if got := together.Load() == 1; got != c.single || single.Load() == 1 != c.single {
			t.Errorf("%s: %d commands for several locks and %d for one", name, together.Load(), single.Load())
		}
	}
}

// A proxy that says that it has all keys, but refuses keys of several slots, gets no such
// command on that connection any more. Each refused call is sent by itself.
func TestTogetherRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal  string
		together int64 // of 3 batches
	}{
		{"-CROSSSLOT Keys in request don't hash to the same slot\r\n", 1},
		{"-ERR 'EVALSHA' command keys must in same slot\r\n", 1},
		{"-ERR too many keys\r\n", 3},
	} {
		var together, single atomic.Int64
		s := batcherTo(t, false, func(args []string) string {
			switch {
			case args[0] == "info":
				return answerOf(wholeServer)
			case args[1] == togetherScript.hash:
				together.Add(1)
				return c.refusal
			}
			single.Add(1)
			return freed
		})
		do(s, acquireCall(t, "a", newID()))
		for range 3 {
			calls := []*call{acquireCall(t, "a", newID()), releaseCall(t, "b", newID(), releaseArgs{})}
			do(s, calls...)
			for _, c := range calls {
				if c.err != nil || c.reply.number() != 1 {
					t.Errorf("%v, %v", c.reply, c.err)
				}
			}
		}
		if together.Load() != c.together || single.Load() != 7 {
			t.Errorf("%q: %d commands for several locks and %d for one", c.refusal, together.Load(), single.Load())
		}
	}
}

// Leases are renewed by as few commands as locks are acquired.
func TestRenewalsTogetherOnlyAtOneServer(t *testing.T) {
	t.Parallel()
	servers := maps.Clone(servers)
	servers["a proxy that refuses"] = servers["one server"]
	for name, c := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var renewals, leases atomic.Int64
			addr := stub(t, func(args []string) string {
				switch {
				case args[0] == "info":
					return c.info
				case args[0] == "evalsha" && args[1] == togetherScript.hash:
					renewals.Add(1)
					if name == "a proxy that refuses" {
						return "-ERR 'EVALSHA' command keys must in same slot\r\n"
					}
					leases.Add(3)
					return "*3\r\n:1\r\n:1\r\n:1\r\n"
				case args[0] == "evalsha" && args[1] == renewScript.hash:
					renewals.Add(1)
					leases.Add(1)
					return renewed
				case args[0] == "evalsha":
					return ":4\r\n"
				}
				return "-ERR unknown command\r\n"
			})
			b := newTestBackend(t, addr)
			var held []driver.Lease
			for range 3 {
				lease, _ := grantOf(t, b, &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: time.Minute, Tokens: 1})
				held = append(held, lease)
			}
			want := []int64{3, 6}
			switch {
			case name == "a proxy that refuses":
				want = []int64{4, 7} // the first command is refused, and then each lease has its own
			case c.single:
				want = []int64{1, 2}
			}
			var sent []int64
			for range 2 {
				for i, err := range b.RenewAll(t.Context(), held, []time.Duration{time.Minute, time.Minute, time.Minute}) {
					if err != nil {
						t.Errorf("%d: %v", i, err)
					}
				}
				sent = append(sent, renewals.Load())
			}
			if !slices.Equal(sent, want) || leases.Load() != 6 {
				t.Errorf("%d commands after each of two renewals, want %d; %d leases were renewed, want 6", sent, want, leases.Load())
			}
		})
	}
}

// A proxy that closes the connection on INFO can't be used, and the error says so.
func TestHangsUpOnInfo(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		addr := stub(t, func(args []string) string {
			if args[0] == "info" {
				return ""
			}
			return freed
		})
		b := New(newClient(t, addr), Options{AllowEviction: allowed})
		t.Cleanup(func() { _ = b.Close() })
		for range 3 {
			_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: newID(), TTL: time.Minute, Tokens: 1})
			if err == nil || !strings.Contains(err.Error(), "INFO (a proxy") {
				t.Errorf("AllowEviction %t: %v", allowed, err)
			}
		}
	}
}
