//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
)

// asDemo in the environment makes the test binary run as the demo or as one of its workers.
const asDemo = "SECKILL_TEST_AS_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
	}
	flag.Parse()
	// The sales mostly wait, for each other and for the leases of killed workers, and compute
	// little.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// run is one run of the demo as a user would start it.
type run struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr io.ReadCloser
	temp   string // the temporary folder, which must be empty after the end
}

func start(t *testing.T, args ...string) *run {
	t.Helper()
	r := &run{Cmd: exec.Command(os.Args[0], args...), temp: t.TempDir()}
	r.Env = append(os.Environ(), asDemo+"=1", "TMPDIR="+r.temp, "REDIS_ADDR=")
	r.Stdout = &r.stdout
	var err error
	r.stderr, err = r.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, r.Start())
	return r
}

// end waits for the demo and all of its workers. They share its stderr, which ends with the last of
// them. It returns the exit code and the rest of stderr.
func (r *run) end(t *testing.T) (code int, stderr string) {
	t.Helper()
	// This prevents hanging for ever; the time is far longer than the tests need.
	watchdog := time.AfterFunc(2*time.Minute, func() { r.stderr.Close() })
	defer watchdog.Stop()
	said, err := io.ReadAll(r.stderr)
	require.NoError(t, err, "processes are left")
	r.Wait() //nolint:errcheck // the caller checks the exit code
	left, err := os.ReadDir(r.temp)
	require.NoError(t, err)
	assert.Empty(t, left, "files are left")
	return r.ProcessState.ExitCode(), string(said)
}

// interrupt sends the signal of Ctrl-C. It returns what the demo prints until it ends, which it
// must do in time. The machine may be late for several of its processes.
func (r *run) interrupt(t *testing.T) (stderr string) {
	t.Helper()
	meter := lagmeter.Start()
	defer meter.Stop()
	at := time.Now()
	require.NoError(t, r.Process.Signal(os.Interrupt))
	code, stderr := r.end(t)
	assert.Equal(t, exitInterrupted, code)
	assert.Less(t, time.Since(at), exitTimeout+2*time.Second+meter.Since(at))
	return stderr
}

// waitFor reads stderr until a line contains text.
func (r *run) waitFor(t *testing.T, text string) {
	t.Helper()
	lines := bufio.NewScanner(&oneByte{r.stderr})
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the demo ended without printing %q: %v", text, lines.Err())
}

// oneByte keeps the scanner from reading ahead, because end reads the rest.
type oneByte struct{ io.Reader }

func (b *oneByte) Read(p []byte) (int, error) { return b.Reader.Read(p[:1]) }

// served returns the flags for each engine whose locks are shared by processes.
func served(t *testing.T) map[string][]string {
	t.Helper()
	served := map[string][]string{"miniredis": {}, "sqlite": {"-backend", "sqlite"}, "quorum": {"-backend", "quorum"},
		"failover": {"-backend", "failover"}}
	find := map[string]func(testing.TB) string{
		"redis": testserver.Redis, "etcd": testserver.Etcd, "zookeeper": testserver.ZooKeeper,
		"consul": testserver.Consul, "mysql": testserver.MySQL, "postgres": testserver.Postgres,
	}
	for name := range backends {
		if shared, ok := find[name]; ok {
			served[name] = []string{"-backend", name, "-address", shared(t)}
		}
	}
	require.Len(t, served, len(backends), "all engines but memory, and one of the demo's own")
	return served
}

func TestDemo(t *testing.T) {
	t.Parallel()
	all := served(t)
	delete(all, "quorum") // see TestDemoOfQuorum
	all["memory"] = []string{"-backend", "memory"}
	for name, flags := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demoSells(t, name, flags, 120, 40)
		})
	}
}

// The five servers also run on this machine, and a member that answers late has no vote. So this
// demo runs alone, with only as many calls at once as a slow member can answer.
func TestDemoOfQuorum(t *testing.T) { demoSells(t, "quorum", []string{"-backend", "quorum"}, 60, 20) }

// demoSells sells stock to that many buyers, of whom half click twice, and checks the report.
func demoSells(t *testing.T, name string, flags []string, buyers, stock int) {
	r := start(t, append(flags, "-json", "-buyers", strconv.Itoa(buyers), "-stock", strconv.Itoa(stock))...)
	code, stderr := r.end(t)
	require.Zero(t, code, stderr)
	got := decode(t, r)
	assert.Equal(t, name, got.Backend)
	assert.Empty(t, got.Problems)
	assert.Positive(t, got.Unguarded.Oversold)
	assert.Positive(t, got.Unguarded.Duplicates)
	assertExact(t, got, stock)
	refused := buyers*3/2 - stock
	assert.GreaterOrEqual(t, got.Guarded.Rejected, refused, "every click got its answer")
	// A buyer who clicks again because no answer came may find that the first click has ordered.
	assert.LessOrEqual(t, got.Guarded.Rejected, refused+got.Guarded.ClickedAgain)
	if name != "memory" {
		assert.Contains(t, stderr, "4 workers share ")
	}
}

// S2, S3, S4: one holder is killed, and one is stopped for longer than its lease. The fenced
// database refuses the late write of the second.
func TestDemoKill(t *testing.T) {
	t.Parallel()
	for name, flags := range served(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, append(flags, "-json", "-kill", "-workers", "3", "-buyers", "60", "-stock", "30")...)
			code, stderr := r.end(t)
			require.Zero(t, code, stderr)
			got := decode(t, r)
			assertExact(t, got, 30)
			require.NotNil(t, got.Kill)
			assert.Equal(t, refusedByFence, got.Kill.Stopped.LateWrite)
			assert.Contains(t, got.Kill.Stopped.Error, "lock lost")
			assert.NotEqual(t, got.Kill.Killed.PID, got.Kill.Stopped.PID)
			assert.Less(t, got.Kill.Killed.NextOrder, 10_000.0)
			assert.GreaterOrEqual(t, got.Guarded.ClickedAgain, 2, "both users clicked again")
			assert.Contains(t, stderr, "was killed while it held the lock")
			switch name {
			case "quorum":
				require.NotNil(t, got.Kill.Engine)
				assert.Contains(t, stderr, "killed: masters 2 and 4 of 5")
				assert.Less(t, got.Kill.Engine.NextOrder, 10_000.0)
			case "failover":
				require.NotNil(t, got.Kill.Engine)
				assert.Contains(t, stderr, "killed: the primary")
				assert.Contains(t, stderr, "ms later (the bound is ")
				assert.Less(t, got.Kill.Engine.NextOrder, got.Kill.Engine.Bound)
			}
		})
	}
}

func decode(t *testing.T, r *run) (got report) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.stdout.Bytes(), &got))
	return got
}

func assertExact(t *testing.T, r report, stock int) {
	t.Helper()
	assert.Equal(t, stock, r.Guarded.Sold)
	assert.Zero(t, r.Guarded.Oversold)
	assert.Zero(t, r.Guarded.Duplicates)
	assert.Zero(t, r.Guarded.Left)
}

// The sale is far too long to end by itself: the signal ends it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	r := start(t, "-buyers", "1000000", "-stock", "500000")
	r.waitFor(t, "without-lock")
	assert.Contains(t, r.interrupt(t), "seckill: interrupted")
	assert.Empty(t, r.stdout.String())
}

func TestFrontDeskDies(t *testing.T) {
	t.Parallel()
	r := start(t, "-buyers", "1000000", "-stock", "500000")
	r.waitFor(t, "without-lock")
	require.NoError(t, r.Process.Kill())
	code, _ := r.end(t) // the workers and their folder must be gone then
	assert.Equal(t, -1, code)
}

// longKill is a sale that continues for seconds after the fault.
var longKill = []string{"-kill", "-workers", "3", "-buyers", "600", "-stock", "20"}

// A worker that is stopped can't notice that the front desk has died. Nevertheless it must not be
// left.
func TestFrontDeskDiesWhileAWorkerIsStopped(t *testing.T) {
	t.Parallel()
	r := start(t, longKill...)
	r.waitFor(t, "was stopped while it held the lock")
	require.NoError(t, r.Process.Kill())
	code, _ := r.end(t)
	assert.Equal(t, -1, code)
}

func TestInterruptWhileAWorkerIsStopped(t *testing.T) {
	t.Parallel()
	r := start(t, longKill...)
	r.waitFor(t, "was stopped while it held the lock")
	r.interrupt(t)
}

// nobody is an address without a server. A port that was free a moment ago might be used by another
// test by now.
const nobody = "127.0.0.1:1"

func TestNoRedis(t *testing.T) {
	t.Parallel()
	r := start(t, "-redis", nobody)
	code, stderr := r.end(t)
	assert.Equal(t, exitWrong, code)
	assert.Contains(t, stderr, "seckill: no usable Redis at "+nobody)
	assert.Contains(t, stderr, "connection refused\nStart one there")
}

// If an engine does not answer, an error says so at once.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	for name := range testServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, "-backend", name, "-address", nobody)
			code, stderr := r.end(t)
			assert.Equal(t, exitWrong, code)
			assert.Contains(t, stderr, "seckill: no usable ")
			assert.Contains(t, stderr, nobody)
		})
	}
}

func TestNeedsAServer(t *testing.T) {
	t.Setenv("LOCKGEN_TEST_ETCD", "")
	_, err := parseOptions([]string{"-backend", "etcd"}, io.Discard)
	assert.ErrorContains(t, err, "-backend etcd needs a server: say where it is by -address")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	r := start(t, "-workers", "0")
	code, stderr := r.end(t)
	assert.Equal(t, exitUsage, code)
	assert.Equal(t, "seckill: -workers 0: want 1 to 64\n", stderr)
	r = start(t, "-stock", "x")
	code, stderr = r.end(t)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, `invalid value "x" for flag -stock`)
	r = start(t, "-redis", "nohost")
	code, stderr = r.end(t)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, `seckill: -redis "nohost": want HOST:PORT`)
	for want, args := range map[string][]string{
		`seckill: -backend "mongo": there is consul, etcd, failover, memory, mysql, postgres, quorum, redis, sqlite, zookeeper`: {"-backend", "mongo"},
		`seckill: -redis is -address for -backend redis: say one of them`:                                                       {"-backend", "etcd", "-redis", "x:1"},
		`seckill: -address "nohost": want HOST:PORT`:                                                                            {"-backend", "etcd", "-address", "nohost"},
		`seckill: -kill with -backend memory: its locks end with their process, so there is nothing to see`:                     {"-kill", "-backend", "memory"},
	} {
		r = start(t, args...)
		code, stderr = r.end(t)
		assert.Equal(t, exitUsage, code)
		assert.Equal(t, want+"\n", stderr)
	}
	r = start(t, "-help")
	code, stderr = r.end(t)
	assert.Zero(t, code)
	assert.Contains(t, stderr, "exit status:")
}

// A worker that dies unexpectedly ends the demo, with an error that names it.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	r := start(t, "-workers", "2", "-buyers", "1000000", "-stock", "500000")
	r.waitFor(t, "without-lock")
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(r.Process.Pid)).Output()
	require.NoError(t, err)
	victim := strings.Fields(string(out))[0]
	require.NoError(t, exec.Command("kill", "-KILL", victim).Run())
	code, stderr := r.end(t)
	assert.Equal(t, exitWrong, code)
	assert.Contains(t, stderr, "(pid "+victim+") ended in the middle of the sale: signal: killed")
}
