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

// forwarded are the signals that are passed on to the command.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// isFatal reports whether a signal ends a process that does not handle it.
func isFatal(s os.Signal) bool { return s != syscall.SIGWINCH }

// group is the process group of a command: the command, and the processes that it starts,
// except those that leave the group.
type group struct {
	id       int
	terminal int // the terminal whose foreground it is, or -1
}

// startGroup starts cmd in a group of its own. If this process is in the foreground of the
// terminal, the group gets the foreground. On Linux the command ends when this process ends.
func startGroup(cmd *exec.Cmd) (*group, error) {
	g := &group{terminal: -1}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if stdin, ok := cmd.Stdin.(*os.File); ok {
		if own, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCGPGRP); err == nil && own == unix.Getpgrp() {
			g.terminal = int(stdin.Fd())
			attr.Foreground, attr.Ctty = true, g.terminal
			signal.Ignore(syscall.SIGTTOU) // it would stop this process when it takes the terminal back
		}
	}
	endWithParent(attr)
	cmd.SysProcAttr = attr
	runtime.LockOSThread() // never unlocked: on Linux the command ends when the thread that started it ends
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.id = cmd.Process.Pid
	return g, nil
}

func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.id, s) }

// end ends all processes of the group: by SIGTERM, and by SIGKILL once grace is over.
func (g *group) end(grace time.Duration) {
	if !g.alive() {
		return
	}
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT) // a stopped process can't end
	for late := time.Now().Add(grace); g.alive() && time.Now().Before(late); {
		time.Sleep(groupPoll)
	}
	g.signal(syscall.SIGKILL)
}

// alive reports whether the group has a process. A process that has ended counts until its
// parent has waited for it.
func (g *group) alive() bool { return !errors.Is(syscall.Kill(-g.id, 0), syscall.ESRCH) }

// finish gives the terminal back to this process.
func (g *group) finish() {
	if g.terminal >= 0 {
		_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	}
}
