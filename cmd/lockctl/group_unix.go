//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that go on to the command.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// isFatal reports whether a signal ends a process that has not asked for it.
func isFatal(s os.Signal) bool { return s != syscall.SIGWINCH }

// group is the process group of a command: the command, and all that it starts which does
// not leave the group.
type group struct {
	id       int
	terminal int // whose foreground it is; -1 is none
}

// startGroup starts cmd as a group of its own, in the foreground of the terminal if this
// process is there. On Linux the command ends with this process, whatever ends that.
func startGroup(cmd *exec.Cmd) (*group, error) {
	g := &group{terminal: -1}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if stdin, ok := cmd.Stdin.(*os.File); ok {
		if own, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCGPGRP); err == nil && own == unix.Getpgrp() {
			g.terminal = int(stdin.Fd())
			attr.Foreground, attr.Ctty = true, g.terminal
			signal.Ignore(syscall.SIGTTOU) // by which it could not take the terminal back
		}
	}
	endWithParent(attr)
	cmd.SysProcAttr = attr
	runtime.LockOSThread() // for good: on Linux the command would end with the thread
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.id = cmd.Process.Pid
	return g, nil
}

func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.id, s) }

// end ends all that is left of the group: by SIGTERM, and by SIGKILL once grace is over.
func (g *group) end(grace time.Duration) {
	if !g.alive() {
		return
	}
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT) // what is stopped can't end
	for late := time.Now().Add(grace); g.alive() && time.Now().Before(late); {
		time.Sleep(groupPoll)
	}
	g.signal(syscall.SIGKILL)
}

// alive reports whether a process of the group is there. One that has ended counts until
// its parent has waited for it.
func (g *group) alive() bool { return !errors.Is(syscall.Kill(-g.id, 0), syscall.ESRCH) }

// finish gives the terminal back to this process.
func (g *group) finish() {
	if g.terminal >= 0 {
		_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	}
}
