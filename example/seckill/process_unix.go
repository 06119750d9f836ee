//go:build unix && !linux

package main

import "syscall"

// ownGroup starts a worker in a process group of its own: Ctrl-C reaches the
// front desk alone, which then ends the workers in order.
//
// A worker sees in its stdin that the front desk died, unless it is stopped:
// then its group is an orphan, which POSIX wakes with SIGHUP and SIGCONT.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
