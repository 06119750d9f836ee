//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// The test binary runs itself as the command.
const beCommand = "LOCKGEN_TESTSERVER_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folders := t.TempDir()                                         // a killed wrapper leaves the folders of its servers behind
	if err := os.Chmod(filepath.Dir(folders), 0o755); err != nil { // for servers that run as another user
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), beCommand+"=1", "LOCKGEN_TEST_REDIS=", "LOCKGEN_TEST_REQUIRE=all",
		"TMPDIR="+folders,
		"GORACE=atexit_sleep_ms=0") // the race detector's exit takes a second else
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func TestExitCodes(t *testing.T) {
	testserver.Redis(t) // skips the test if there is no Redis
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"exec", "--", "true"}, 0, "ready in"},
		{[]string{"exec", "-only", "redis", "--", "sh", "-c", "exit 3"}, 3, "ready in"},
		{[]string{"exec", "--", "sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"exec", "--", "no-such-command"}, 1, "no-such-command"},
		{[]string{"exec", "-only", "oracle", "--", "true"}, 1, `no server "oracle"; there is redis`},
		{[]string{"exec"}, 2, "usage"},
		{[]string{}, 2, "usage"},
	} {
		out, err := command(t, c.args...).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code := 0
		if exit != nil {
			code = exit.ExitCode()
		}
		if code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%q: exit code %d, want %d with %q; output:\n%s", c.args, code, c.code, c.says, out)
		}
	}
}

func TestGivenServerIsUsedAsItIs(t *testing.T) {
	cmd := command(t, "exec", "-only", "redis", "--", "sh", "-c", "echo $LOCKGEN_TEST_REDIS")
	cmd.Env = append(cmd.Env, "LOCKGEN_TEST_REDIS=elsewhere:1")
	out, err := cmd.Output()
	if err != nil || string(out) != "elsewhere:1\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// running starts the command with script, which must first print a line, and
// returns that line.
func running(t *testing.T, script string) (cmd *exec.Cmd, line string) {
	t.Helper()
	testserver.Redis(t)
	cmd = command(t, "exec", "-only", "redis", "--", "sh", "-c", script)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	line, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func TestSignalGoesToTheCommand(t *testing.T) {
	cmd, addr := running(t, `trap 'exit 7' TERM; echo $LOCKGEN_TEST_REDIS; while :; do sleep 0.02; done`)
	if _, err := testserver.Command(t.Context(), addr, "PING"); err != nil {
		t.Error(err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want the trap's 7", code)
	}
	if _, err := testserver.Command(t.Context(), addr, "PING"); err == nil {
		t.Error("the server outlived the command")
	}
}

func TestServersDieWithAKilledWrapper(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux has a parent-death signal: nothing to check")
		return
	}
	cmd, addr := running(t, `echo $LOCKGEN_TEST_REDIS; exec sleep 60`)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		_, err := testserver.Command(ctx, addr, "PING")
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the server outlived the killed wrapper")
		}
	}
}

func TestServerThatIsMissingFailsTheRun(t *testing.T) {
	cmd := command(t, "exec", "-only", "redis", "--", "/bin/echo", "ran")
	cmd.Env = append(cmd.Env, "PATH=/nowhere", "CI=true")
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("ready in")) {
		t.Log("a Redis outside PATH was found")
		return
	}
	if err == nil || !bytes.Contains(out, []byte("install-servers redis")) || bytes.Contains(out, []byte("ran\n")) {
		t.Errorf("%v\n%s", err, out)
	}
}
