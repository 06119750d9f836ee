package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// runProgram runs a command under the lock.
func (c *command) runProgram(ctx context.Context) error {
	key := c.args[0]
	path, err := exec.LookPath(c.program[0])
	if err != nil {
		return noProgram(err)
	}
	b, err := c.open()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.timeout, func() { cancel(context.DeadlineExceeded) })
	locker := lock.New(b.Backend, &lock.Options{Observer: answer{late}})
	var held *lock.Hold
	defer func() { c.close(ctx, locker, held != nil) }()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	p := &lock.Policy{TTL: c.ttl, Wait: c.maxWait, Try: c.try, Read: c.read, Write: c.write, Fair: c.fair}
	under, held, err := c.acquire(bounded, locker, p, key, signals)
	late.Stop()
	if cause := context.Cause(bounded); cause != nil {
		held.Release(&err) // the grant came when the time was over
		err = errors.Join(cause, err)
	}
	if err != nil {
		return c.reached(err)
	}
	err = c.execute(under, path, key, signals)
	then := "it was ended"
	if under.Err() == nil {
		then = "it had ended before the loss was found"
	}
	var lost error
	held.Release(&lost)
	if errors.Is(lost, lock.ErrLost) {
		return failed(codeLost, "the lock on %s was lost while %s ran, and %s: %v", key, c.program[0], then, lost)
	}
	return err
}

// answer stops a timer when the engine has granted the lock or has said that another holds it.
type answer struct{ late *time.Timer }

// Observe implements [lock.Observer].
func (a answer) Observe(_ context.Context, e lock.Event) {
	if e.Kind == lock.Acquired || e.Kind == lock.Waiting {
		a.late.Stop()
	}
}

// close closes l, and prints a message if a lock was taken and could not be released.
func (c *command) close(ctx context.Context, l *lock.Locker, taken bool) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := l.Close(ctx); err != nil && taken {
		fmt.Fprintf(c.stderr, "lockctl: the lock could not be released, and stays until its lease of %v is over: %v\n", c.ttl, err)
	}
}

// acquire takes the lock, unless a signal ends the wait.
func (c *command) acquire(ctx context.Context, l *lock.Locker, p *lock.Policy, key string, signals <-chan os.Signal) (context.Context, *lock.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	got, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case s := <-signals:
				if isFatal(s) {
					cancel(exitStatus(codeSignal + int(s.(syscall.Signal))))
				}
			case <-got:
				return
			}
		}
	}()
	under, held, err := l.Acquire(ctx, p, key)
	close(got)
	<-heard // from now on signals go to the command
	if cause, ok := errors.AsType[exitStatus](context.Cause(ctx)); ok {
		if err == nil {
			held.Release(nil)
		}
		return ctx, nil, cause
	}
	return under, held, err
}

// execute runs the command until it and all processes that it has started have ended. ctx
// ends with the lock.
func (c *command) execute(ctx context.Context, path, key string, signals <-chan os.Signal) error {
	token, _ := lock.Token(ctx)
	cmd := &exec.Cmd{Path: path, Args: c.program, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr}
	cmd.Env = append(os.Environ(), "LOCKGEN_KEY="+key, "LOCKGEN_TOKEN="+strconv.FormatUint(token, 10))
	g, err := startGroup(cmd)
	if err != nil {
		return noProgram(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			g.signal(s.(syscall.Signal))
		case <-ctx.Done():
			g.end(c.grace)
			err := <-ended
			g.finish()
			return exitOf(err)
		case err := <-ended:
			g.end(c.grace) // no process may continue without the lock
			g.finish()
			return exitOf(err)
		}
	}
}

// exitOf returns the exit status of lockctl for that of the command.
func exitOf(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return failed(codeNoStart-runCode, "%v", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitStatus(codeSignal + int(status.Signal()))
	}
	return exitStatus(exit.ExitCode())
}

// noProgram says why a command could not be run, with the exit codes of a shell.
func noProgram(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return failed(codeNoFile-runCode, "%v", err)
	}
	return failed(codeNoStart-runCode, "%v", err)
}

// groupPoll is how often to check whether a group of processes has ended.
const groupPoll = 10 * time.Millisecond
