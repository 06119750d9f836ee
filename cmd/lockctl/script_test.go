package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// The behaviour of the command is described by testdata/all/*.txtar, on each engine, and by
// testdata/<engine>/*.txtar. The test binary is the command.

func TestMain(m *testing.M) {
	if os.Getenv(crosserEnv) != "" {
		os.Exit(crosserMain())
	}
	if filepath.Base(os.Args[0]) != "lockctl" { // otherwise the flags are the command's
		flag.Parse()
		// The scripts mostly wait for leases and processes, and compute little.
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	testscript.Main(m, map[string]func(){"lockctl": main})
}

// site is an engine in a test.
type site struct {
	name    string
	named   bool   // its locks name the process that holds them
	ttl     string // the ttl of a lock whose loss is noticed soon; 3s unless set
	url     func(t *testing.T) string
	foreign func(ts *testscript.TestScript, url, key string) // makes another client of the engine take key
	junk    func(ts *testscript.TestScript, url, key string) // puts a value that is not a lock at key
}

var sites = []site{
	{name: "redis", named: true, url: func(t *testing.T) string { return "redis://" + testserver.Redis(t) }, foreign: redisson, junk: redisText},
	{name: "etcd", named: true, url: func(t *testing.T) string { return "etcd://" + testserver.Etcd(t) }, foreign: etcdMutex, junk: etcdValue},
	{name: "consul", named: true, ttl: "10s", url: func(t *testing.T) string { return "consul://" + testserver.Consul(t) }, foreign: consulLock, junk: consulValue},
	{name: "zk", named: true, ttl: "4s", url: func(t *testing.T) string { return "zk://" + testserver.ZooKeeper(t) }, foreign: zkLock, junk: zkNode},
	{name: "postgres", named: true, url: func(t *testing.T) string {
		return migrated(t, "postgres://lockgen@"+testserver.Postgres(t)+"/postgres?sslmode=disable")
	}},
	{name: "mysql", named: true, url: mariaDB},
	{name: "sqlite", named: true, url: sqliteFile},
}

func TestScripts(t *testing.T) {
	for _, s := range sites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url := s.url(t)
			for _, dir := range []string{"all", s.name} {
				if _, err := os.Stat(filepath.Join("testdata", dir)); err == nil {
					t.Run(dir, func(t *testing.T) { testscript.Run(t, s.params(url, dir)) })
				}
			}
		})
	}
}

func TestScriptsWithoutAnEngine(t *testing.T) {
	testscript.Run(t, (&site{name: "none"}).params("", "none"))
}

func (s *site) params(url, dir string) testscript.Params {
	return testscript.Params{
		Dir:                 filepath.Join("testdata", dir),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LOCKCTL_URL", url)
			env.Setenv("ENGINE", s.name)
			env.Setenv("TTL", cmp.Or(s.ttl, "3s"))
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			env.Setenv("P", fmt.Sprintf("lockctl-%d-%s-", os.Getpid(), filepath.Base(env.WorkDir)))
			return nil
		},
		Condition: func(name string) (bool, error) {
			return name == s.name || name == "named" && s.named || name == "sql" && s.junk == nil, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exit-status": exitStatusIs,
			"hold":        func(ts *testscript.TestScript, _ bool, args []string) { s.hold(ts, url, args) },
			"waiter":      func(ts *testscript.TestScript, _ bool, args []string) { s.waiter(ts, url, args[0]) },
			"served":      func(ts *testscript.TestScript, _ bool, args []string) { served(ts, url, args[0]) },
			"foreign":     func(ts *testscript.TestScript, _ bool, args []string) { s.foreign(ts, url, args[0]) },
			"junk":        func(ts *testscript.TestScript, _ bool, args []string) { s.junk(ts, url, args[0]) },
			"let-go":      func(_ *testscript.TestScript, _ bool, args []string) { releaseHeld(url, args[0]) },
			"prints":      prints,
			"gone":        gone,
			"wait-for":    waitFor,
		},
	}
}

// holds has the locks of the running scripts, as functions that release them. waiters has their
// waiters, as channels that get an error or nil once the waiter has had its lock. Scripts of the
// same name have the same keys at their engines.
var holds, waiters sync.Map // by holdID

type holdID struct{ url, key string }

func (s *site) locker(ts *testscript.TestScript, url string) *lock.Locker {
	b, err := (&command{settings: settings{url: url}}).open()
	ts.Check(err)
	l := lock.New(b.Backend, &lock.Options{Name: "till 3"})
	ts.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// hold makes a service take a lock until the script ends: hold key [fair|write|permits].
func (s *site) hold(ts *testscript.TestScript, url string, args []string) {
	p := &lock.Policy{}
	for _, kind := range args[1:] {
		switch kind {
		case "fair":
			p.Fair = true
		case "write":
			p.Write = true
		case "permits":
			p.Permits = 2
		}
	}
	_, held, err := s.locker(ts, url).Acquire(context.Background(), p, args[0])
	ts.Check(err)
	ts.Setenv("TOKEN", strconv.FormatUint(held.Token(), 10))
	free := func() { _ = held.Unlock() }
	holds.Store(holdID{url, args[0]}, free)
	ts.Defer(free)
}

func releaseHeld(url, key string) {
	free, _ := holds.Load(holdID{url, key})
	free.(func())()
}

// waiter makes a service wait for a lock.
func (s *site) waiter(ts *testscript.TestScript, url, key string) {
	l := s.locker(ts, url)
	ctx, cancel := context.WithCancel(context.Background())
	done, got := make(chan struct{}), make(chan error, 1)
	waiters.Store(holdID{url, key}, got)
	go func() {
		defer close(done)
		got <- l.Do(ctx, nil, key, func(context.Context) error { return nil })
	}()
	ts.Defer(func() { cancel(); <-done })
}

// served waits until a waiter has had its lock and has released it: served key.
func served(ts *testscript.TestScript, url, key string) {
	got, ok := waiters.Load(holdID{url, key})
	if !ok {
		ts.Fatalf("nobody waits for %s", key)
	}
	select {
	case err := <-got.(chan error):
		ts.Check(err)
	case <-time.After(long):
		ts.Fatalf("the waiter for %s does not get the lock", key)
	}
}

// long is longer than a command takes on a busy machine.
const long = time.Minute

// prints runs a program again and again until its output contains a text: prints text prog args.
func prints(ts *testscript.TestScript, _ bool, args []string) {
	out := ""
	for late := time.Now().Add(long); time.Now().Before(late); time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if out = ts.ReadFile("stdout"); err == nil && strings.Contains(out, args[0]) {
			return
		}
	}
	ts.Fatalf("%q never printed %q, but %s", args[1:], args[0], out)
}

// exitStatusIs runs a program and checks its exit status: exit-status 2 prog args.
func exitStatusIs(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// gone waits until the process whose number is in a file has ended: gone file.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	for late := time.Now().Add(long); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if syscall.Kill(pid, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	ts.Fatalf("process %d has not ended", pid)
}

// waitFor waits until a file has a line, or a line that contains a text: wait-for file [text].
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for late := time.Now().Add(long); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(text), args[len(args)-1]) && len(args) > 1 || strings.HasSuffix(string(text), "\n") && len(args) == 1 {
			return
		}
	}
	ts.Fatalf("the file never contained the text: %q", args)
}
