package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do is like Command, but the command must succeed.
func do(t *testing.T, addr string, args ...string) any {
	t.Helper()
	v, err := Command(t.Context(), addr, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return v
}

func TestCommandParsesEveryKindOfReply(t *testing.T) {
	addr := StartRedis(t).Addr()
	for _, step := range []struct {
		args string
		want any
	}{
		{"SET s v", "OK"},
		{"GET s", "v"},
		{"GET absent", nil},
		{"APPEND s \r\n", int64(3)},
		{"GET s", "v\r\n"},
		{"HSET h owner:1 1", int64(1)},
		{"HGETALL h", []any{"owner:1", "1"}},
		{"HGETALL absent", []any{}},
		{"EVAL return{1,{'two'},false,{err='X_three'}} 0", []any{int64(1), []any{"two"}, nil, ServerError("X_three")}},
		{"BLPOP absent 0.01", nil},
	} {
		if got := do(t, addr, strings.Split(step.args, " ")...); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%q = %#v, want %#v", step.args, got, step.want)
		}
	}
	_, err := Command(t.Context(), addr, "LPUSH", "s", "x")
	var refused ServerError
	if !errors.As(err, &refused) || !strings.HasPrefix(string(refused), "WRONGTYPE") {
		t.Errorf("LPUSH to a string: %v", err)
	}
}

func TestArgsReachTheServer(t *testing.T) {
	r := StartRedis(t, "--maxmemory", "7mb", "--enable-debug-command", "yes",
		"--user", "default", "off", "--user", "alice", "on", ">pw", "~*", "+@all")
	if _, err := r.Command(t.Context(), "GET", "x"); !strings.HasPrefix(fmt.Sprint(err), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
	r.User, r.Password = "alice", "pw"
	got, err := r.Command(t.Context(), "CONFIG", "GET", "maxmemory")
	if want := []any{"maxmemory", "7340032"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("CONFIG GET maxmemory = %v, %v, want %v", got, err, want)
	}
	if _, err := r.Command(t.Context(), "DEBUG", "SLEEP", "0"); err != nil {
		t.Error(err)
	}
}

func TestStopAndCont(t *testing.T) {
	r := StartRedis(t)
	r.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Command(ctx, "PING"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PING to a stopped server: %v", err)
	}
	r.Cont()
	do(t, r.Addr(), "PING")
}

func TestKillAndRestart(t *testing.T) {
	r := StartRedis(t)
	addr := r.Addr()
	do(t, addr, "SET", "k", "v")
	do(t, addr, "SAVE")
	r.Kill()
	if _, err := Command(t.Context(), addr, "PING"); err == nil {
		t.Error("a killed server answers")
	}
	r.Restart()
	if got := do(t, r.Addr(), "GET", "k"); got != nil || r.Addr() != addr {
		t.Errorf("after the restart: k = %v at %s, want nothing at %s", got, r.Addr(), addr)
	}
	r.Stop()
	r.Restart() // also restarts a frozen server
	do(t, addr, "PING")
}

func TestSharedServerEndsWithItsLastUser(t *testing.T) {
	t.Setenv(redisServer.Env, "")
	var addr string
	t.Run("users", func(t *testing.T) {
		addr = Redis(t)
		t.Run("nested", func(t *testing.T) {
			if got := Redis(t); got != addr {
				t.Errorf("two servers, %s and %s", addr, got)
			}
		})
		do(t, addr, "PING")
	})
	if _, err := Command(t.Context(), addr, "PING"); err == nil {
		t.Error("the server still runs although no test uses it")
	}
	t.Setenv(redisServer.Env, "given:1")
	if got := Redis(t); got != "given:1" {
		t.Errorf("%s is not used: %s", redisServer.Env, got)
	}
}

func TestPortTakenByAnother(t *testing.T) {
	thief := *redisServer
	var taken net.Listener
	thief.Command = func(ctx context.Context, l Launch) (*exec.Cmd, error) {
		if taken == nil {
			var err error
			if taken, err = net.Listen("tcp", l.Addr()); err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = taken.Close() })
		}
		return redisCommand(ctx, l)
	}
	need(t, &thief)
	place, process, err := settle(t.Context(), &thief, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer place.leave()
	defer process.kill()
	if place.launch.Addr() == taken.Addr().String() {
		t.Error("started at the taken port")
	}
	do(t, place.launch.Addr(), "PING")
}

func TestStartFailureShowsTheServersLog(t *testing.T) {
	need(t, redisServer)
	_, _, err := settle(t.Context(), redisServer, []string{"--maxmemory", "lots"})
	if err == nil || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("err = %v, want redis's message about maxmemory", err)
	}
}

func TestReservedPortsAreNobodyElses(t *testing.T) {
	var (
		mu     sync.Mutex
		seen   = map[int]bool{}
		takers sync.WaitGroup
	)
	for range 50 {
		takers.Go(func() {
			block, err := reservePorts(3)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(block.release)
			mu.Lock()
			defer mu.Unlock()
			for _, port := range block.ports {
				if seen[port] {
					t.Errorf("port %d was reserved twice", port)
				}
				seen[port] = true
			}
		})
	}
	takers.Wait()
}

// verdict is a testing.TB that records how a test was ended.
type verdict struct {
	testing.TB
	fatal, skip string
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Skipf(format string, args ...any) {
	v.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestMissingServer(t *testing.T) {
	missing := &Server{Name: "redis", Env: "LOCKGEN_TEST_REDIS", Find: func() (string, error) {
		return findBinary("no-such-server")
	}}
	for _, c := range []struct {
		ci, require string
		fatal       bool
	}{
		{"", "", false},
		{"false", "etcd,mariadb", false},
		{"", "etcd,redis", true},
		{"", "all", true},
		{"true", "", true},
	} {
		t.Setenv("CI", c.ci)
		t.Setenv("LOCKGEN_TEST_REQUIRE", c.require)
		v := &verdict{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			need(v, missing)
		}()
		<-ended
		if (v.fatal != "") != c.fatal || (v.skip != "") == c.fatal {
			t.Errorf("CI=%s REQUIRE=%s: fatal %q, skip %q", c.ci, c.require, v.fatal, v.skip)
		}
		if said := v.fatal + v.skip; !strings.Contains(said, "scripts/install-servers redis") {
			t.Errorf("%q does not say how to install it", said)
		}
	}
}

func TestNothingStaysInTheTempFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Run("server", func(t *testing.T) { StartRedis(t) })
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
