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

// answerTimeout is the limit for an answer. It is long because several JVMs may start
// at once.
const answerTimeout = 2 * time.Minute

var errEnded = errors.New("the program has ended")

// command is a program that reads and prints lines. It ends with its test.
type command struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // of its output; closed at the end
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
		_ = c.cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		close(over)
		_ = in.Close() // ends the programs that read orders
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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

// say sends the program a line. If the program has ended, the call of next fails.
func (c *command) say(line string) { _, _ = io.WriteString(c.in, line+"\n") }

func (c *command) interrupt() { _ = c.cmd.Process.Signal(syscall.SIGTERM) }

// wait waits for the end of the program. It returns an error if the exit status is not 0.
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
	require.NoError(t, err, "run make interop, which reports what is missing")
	return &dialog{c}
}

// ask sends a line and returns the answer.
func (d *dialog) ask(ctx context.Context, line string) (string, error) {
	d.say(line)
	answer, err := d.next(ctx)
	if strings.HasPrefix(answer, "error") {
		err = errors.New(answer)
	}
	return answer, err
}
