package main

import "syscall"

// ownGroup starts a worker in a process group of its own. So Ctrl-C reaches only the front desk,
// which then ends the workers in order.
//
// A worker notices by its stdin that the front desk has died, unless the worker is stopped. In that
// case the kernel wakes it. The kernel does so when the thread that started the worker ends; the
// thread of the main goroutine ends with the process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}
