//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// forwarded are the signals that go on to the command: none, where the system has no groups
// of processes. An interrupt reaches it by the console.
var forwarded = []os.Signal{os.Interrupt}

func isFatal(os.Signal) bool { return true }

// group is the command alone.
type group struct{ process *os.Process }

func startGroup(cmd *exec.Cmd) (*group, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &group{cmd.Process}, nil
}

func (g *group) signal(syscall.Signal) {}

func (g *group) end(time.Duration) { _ = g.process.Kill() }

func (g *group) finish() {}
