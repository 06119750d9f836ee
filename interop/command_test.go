package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds the wait for an answer. A java that starts beside others may take
// its time.
const patience = 2 * time.Minute

var errEnded = errors.New("the program has ended")

// command is a program that talks in lines, no longer than a test runs.
type command struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed at the end of its output
	stderr bytes.Buffer
	ended  chan struct{}
}

func startCommand(t *testing.T, env []string, argv ...string) (*command, error) {
	c := &command{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.in = in
	over := make(chan struct{})
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case c.lines <- scanner.Text():
			case <-over:
			}
		}
		_ = c.cmd.Wait() // its state tells
	}()
	t.Cleanup(func() {
		close(over)
		_ = in.Close() // which ends all that are no commands of one lock
		late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
		<-c.ended
		if !late.Stop() || t.Failed() {
			t.Logf("%s: %v\n%s", argv[0], c.cmd.ProcessState, &c.stderr)
		}
	})
	return c, nil
}

// next returns the program's next line.
func (c *command) next(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case line, ok := <-c.lines:
		if !ok {
			return "", errEnded
		}
		return line, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// say tells the program a line. That it has gone is seen at its answer.
func (c *command) say(line string) { _, _ = io.WriteString(c.in, line+"\n") }

func (c *command) interrupt() { _ = c.cmd.Process.Signal(syscall.SIGTERM) }

// wait returns when the program has ended, which is an error if it says so.
func (c *command) wait(ctx context.Context) error {
	for {
		if _, err := c.next(ctx); err == errEnded {
			break
		} else if err != nil {
			return err
		}
	}
	<-c.ended
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s\n%s", c.cmd.Path, c.cmd.ProcessState, &c.stderr)
	}
	return nil
}

// dialog is a program that answers each line with a line.
type dialog struct{ *command }

func startDialog(t *testing.T, argv ...string) *dialog {
	t.Helper()
	c, err := startCommand(t, nil, argv...)
	require.NoError(t, err, "make interop says what is missing")
	return &dialog{c}
}

// ask says a line and returns the answer.
func (d *dialog) ask(ctx context.Context, line string) (string, error) {
	d.say(line)
	answer, err := d.next(ctx)
	if strings.HasPrefix(answer, "error") {
		err = errors.New(answer)
	}
	return answer, err
}
