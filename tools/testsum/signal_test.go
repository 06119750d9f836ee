package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestSignalEndsTheWholeTree checks that a signal to testsum ends all processes that it has started, including those started by a shell.
func TestSignalEndsTheWholeTree(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			continue // ignored, as under nohup
		}
		// Nothing is started after "up", because on some kernels a process that a shell starts while it
		// is being ended may miss the signal.
		cmd := exec.Command(self, "--", "sh", "-c", `sh -c 'sh -c "echo up; exec sleep 60"; true'; true`)
		cmd.Env = append(os.Environ(), beCommand+"=1", "CI=", "LOCKGEN_TEST_REQUIRE=")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "up\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		begin := time.Now()
		_ = cmd.Process.Signal(sig)
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: testsum exits with success", sig)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%v: testsum waited %v for the processes of the shell:\n%s", sig, took, rest)
		}
	}
}
