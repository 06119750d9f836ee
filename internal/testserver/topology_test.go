package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beKilled tells the test below that it runs in a separate process and is to be killed.
const beKilled = "LOCKGEN_TESTSERVER_BE_KILLED"

func TestTopologiesDieWithAKilledTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(beKilled) != "" {
		s, c := StartSentinel(t), StartCluster(t)
		fmt.Println("\nsee", strings.Join(slices.Concat(s.Addrs(), addrs(s.Instances()), c.Addrs()), " "))
		<-t.Context().Done() // the process is killed here
	}
	if runtime.GOOS != "linux" {
		t.Log("only Linux has a parent-death signal: nothing to check")
		return
	}
	need(t, redisServer)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), beKilled+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for lines := bufio.NewScanner(out); len(addrs) == 0 && lines.Scan(); {
		if list, found := strings.CutPrefix(lines.Text(), "see "); found {
			addrs = strings.Fields(list)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(addrs) != 12 {
		t.Fatalf("servers at %q, want 12", addrs)
	}
	for _, addr := range addrs {
		err := await(t.Context(), func(ctx context.Context) error {
			if _, err := Command(ctx, addr, "PING"); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s outlived the killed test: %v", addr, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTopologyLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var s *Sentinel
	t.Run("server", func(t *testing.T) { s = StartSentinel(t) })
	for _, addr := range slices.Concat(s.Addrs(), addrs(s.Instances())) {
		if _, err := Command(t.Context(), addr, "PING"); err == nil {
			t.Errorf("%s is still up", addr)
		}
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTopologyMovesWhenAPortWasTaken(t *testing.T) {
	var taken net.Listener
	tries := 0
	nodes := startTopology(t, "two", []*Server{redisServer, redisServer}, func(ctx context.Context, nodes []*Instance) (err error) {
		if tries++; taken == nil {
			if taken, err = net.Listen("tcp", nodes[1].Addr()); err != nil {
				return err
			}
			t.Cleanup(func() { _ = taken.Close() })
		}
		return startAll(ctx, redisServer, nodes...)
	})
	if tries != 2 {
		t.Errorf("%d tries, want 2", tries)
	}
	for _, i := range nodes {
		do(t, i.Addr(), "PING")
	}
}

func TestAwaitTellsWhatItSawLast(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	never := errors.New("not yet")
	if err := await(ctx, func(context.Context) error { return never }); !errors.Is(err, never) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}
