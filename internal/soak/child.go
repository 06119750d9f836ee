package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
)

// child is one client process.
type child struct {
	proc   int
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	exited chan struct{}
	err    error // of the process; valid after exited

	mu      sync.Mutex
	killed  bool
	records []history.Record
	broken  error
	read    chan struct{} // closed when all its output was read
}

// spawn starts this program again as a client. skew is the error of its wall clock, for
// the mutant that uses it. The runtime itself does not use the wall clock.
func spawn(cfg client.Config, skew time.Duration) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c := &child{proc: cfg.Proc, cmd: exec.Command(self), exited: make(chan struct{}), read: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), client.Env+"="+string(text), "LOCKGEN_SOAK_SKEW="+skew.String())
	c.cmd.ExtraFiles = []*os.File{out}
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = childAttr()
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		_ = in.Close()
		return nil, err
	}
	go c.collect(in)
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// collect reads the output of the process, until the last copy of the other end of the
// pipe is closed.
func (c *child) collect(in *os.File) {
	defer close(c.read)
	defer in.Close()
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // text without a newline is not a complete record
		}
		var r history.Record
		err = json.Unmarshal(line, &r)
		c.mu.Lock()
		if err == nil {
			c.records = append(c.records, r)
		} else {
			c.broken = fmt.Errorf("record %q: %w", line, err)
		}
		c.mu.Unlock()
	}
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// kill ends the process as a crash would.
func (c *child) kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// drain tells the process to finish.
func (c *child) drain() { _ = c.stdin.Close() }

// end waits for the end of a process that was told to drain. It reports whether the process
// crashed or did not end.
func (c *child) end(limit time.Duration) *history.Violation {
	select {
	case <-c.exited:
	case <-time.After(limit):
		c.signal(syscall.SIGQUIT) // the Go runtime prints all stacks
		select {
		case <-c.exited:
		case <-time.After(time.Second):
		}
		c.kill()
		return &history.Violation{Invariant: "I8", At: history.Now(),
			Text: fmt.Sprintf("process %d did not end within %v after healing\n%s", c.proc, limit, &c.stderr)}
	}
	<-c.read
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return &history.Violation{Invariant: "soak", At: history.Now(), Text: c.broken.Error()}
	}
	if c.err != nil && !c.killed {
		return &history.Violation{Invariant: "I8", At: history.Now(),
			Text: fmt.Sprintf("process %d ended by itself: %v\n%s", c.proc, c.err, tail(c.stderr.String()))}
	}
	return nil
}

func tail(text string) string {
	const enough = 16 << 10
	return strings.TrimSpace(text[max(0, len(text)-enough):])
}
