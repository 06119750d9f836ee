//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// killUnsupported says why -kill can't work on this system.
const killUnsupported = ""

// kill ends the process at once, without any clean-up.
func (p *process) kill() error { return p.signal(syscall.SIGKILL) }

// stop halts the process, like a debugger or a long pause. The process does not notice.
func (p *process) stop() error { return p.signal(syscall.SIGSTOP) }

// resume makes a stopped process continue.
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %v: %w", s, p, err)
	}
	return nil
}
