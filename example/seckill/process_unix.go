//go:build unix && !linux

package main

import "syscall"

// ownGroup starts a worker in a process group of its own. So Ctrl-C reaches only the front desk,
// which then ends the workers in order.
//
// A worker notices by its stdin that the front desk has died, unless the worker is stopped. In that
// case its group is an orphan, which POSIX wakes with SIGHUP and SIGCONT.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
