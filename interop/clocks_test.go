package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
)

const (
	fairProcesses  = 8
	fairGoroutines = 8 // of each process
	clocksApart    = time.Minute
	shiftEnv       = "LOCKGEN_CLOCK_SHIFT" // shift in ns of the clock of a program built with shiftedTime

	// Special numbers for the command clocks: hold the lock, and release it.
	holds, leaves = -1, -2
)

// TestFairClocks checks that the order of grants is the order of arrival, with eight processes
// whose clocks are a minute apart.
func TestFairClocks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "clocks")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", shiftedTime(t), "-o", program, "./clocks").CombinedOutput()
	require.NoError(t, err, string(out))
	sql := testserver.MySQL(t)
	_, err = openSQL(t, "mysql", "root@tcp("+sql+")/").Exec("CREATE DATABASE IF NOT EXISTS lockgen")
	require.NoError(t, err)
	for engine, addr := range map[string]string{
		"redis": testserver.Redis(t), "etcd": testserver.Etcd(t), "zookeeper": testserver.ZooKeeper(t),
		"consul": testserver.Consul(t), "mariadb": sql, "postgresql": testserver.Postgres(t),
	} {
		t.Run(engine, func(t *testing.T) {
			var all []*fairProcess
			for i := range fairProcesses {
				// The process that comes first has the latest clock.
				all = append(all, startFair(t, program, engine, addr, time.Duration(fairProcesses/2-i)*clocksApart))
			}
			key := fmt.Sprintf("clocks:%d", os.Getpid())
			granted := grants(t, all, key)
			inversions := 0
			for i, a := range granted {
				for _, b := range granted[i+1:] {
					if b < a {
						inversions++
					}
				}
			}
			t.Logf("%s: %d grants, %d inversions", engine, len(granted), inversions)
			require.Zero(t, inversions, "the order of grants: %v", granted)
		})
	}
}

// grants makes the calls one after the other while the first process holds the lock. It returns
// the order in which the calls got the lock.
func grants(t *testing.T, all []*fairProcess, key string) (order []int) {
	type entry struct {
		n  int
		at time.Time
	}
	var inside []entry
	require.Equal(t, "in", all[0].arrive(t, key, holds)[0])
	for n := range fairProcesses * fairGoroutines {
		require.Equal(t, []string{"waits"}, all[n%len(all)].arrive(t, key, n))
	}
	_, err := fmt.Fprintln(all[0].in, key, leaves)
	require.NoError(t, err)
	for _, p := range all {
		for range fairGoroutines {
			words := p.next(t)
			require.Equal(t, "in", words[0])
			n, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			inside = append(inside, entry{n, p.time(t, words[2])})
		}
	}
	slices.SortFunc(inside, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range inside {
		order = append(order, e.n)
	}
	return order
}

// fairProcess is a running command clocks.
type fairProcess struct {
	shift time.Duration
	in    io.Writer
	lines chan string
}

func startFair(t *testing.T, program, engine, addr string, shift time.Duration) *fairProcess {
	c := exec.Command(program, "-engine", engine, "-addr", addr)
	c.Env = append(os.Environ(), shiftEnv+"="+strconv.FormatInt(int64(shift), 10))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	p := &fairProcess{shift: shift, in: in, lines: make(chan string, 2*fairGoroutines)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		for range p.lines { // until it has closed its Locker
		}
		require.NoError(t, c.Wait())
	})
	return p
}

func (p *fairProcess) next(t *testing.T) []string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "the process has ended")
		return strings.Fields(line)
	case <-ctx.Done():
		require.Fail(t, "the process prints nothing")
		return nil
	}
}

// arrive has p acquire the lock on key as call n, and returns the words of p's answer.
func (p *fairProcess) arrive(t *testing.T, key string, n int) []string {
	_, err := fmt.Fprintln(p.in, key, n)
	require.NoError(t, err)
	return p.next(t)
}

// time converts at, a time by the shifted clock of p. It also checks that the clock is shifted as intended.
func (p *fairProcess) time(t *testing.T, at string) time.Time {
	ns, err := strconv.ParseInt(at, 10, 64)
	require.NoError(t, err)
	by := time.Unix(0, ns).Add(-p.shift)
	require.WithinDuration(t, time.Now(), by, clocksApart/2, "the clock of a process is not shifted as intended")
	return by
}

// shiftedTime returns an overlay of the standard library in which the wall clock is shifted by
// the value of the environment variable shiftEnv.
func shiftedTime(t *testing.T) (overlay string) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	require.NoError(t, err)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), now), "the source of time.Now is not that of Go 1.26")
	changed := strings.Replace(string(text), now, now+"\tsec += clockShift / 1e9\n", 1) + `
// In whole seconds.
var clockShift = func() (n int64) {
	text, _ := syscall.Getenv("` + shiftEnv + `")
	negative := len(text) > 0 && text[0] == '-'
	for _, c := range []byte(text) {
		if c != '-' {
			n = n*10 + int64(c-'0')
		}
	}
	if negative {
		n = -n
	}
	return n
}()
`
	changed = strings.Replace(changed, "import (", "import (\n\t\"syscall\"", 1)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(changed), 0o600))
	file, err := json.Marshal(map[string]any{"Replace": map[string]string{original: filepath.Join(dir, "time.go")}})
	require.NoError(t, err)
	overlay = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, file, 0o600))
	return overlay
}
