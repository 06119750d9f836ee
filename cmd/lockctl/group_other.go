//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// forwarded are the signals that lockctl catches while the command runs. Without process
// groups it passes none on: an interrupt reaches the command through the console.
var forwarded = []os.Signal{os.Interrupt}

func isFatal(os.Signal) bool { return true }

// group is only the command itself.
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
