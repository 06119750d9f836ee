package main

import "syscall"

// ownGroup starts a worker in a process group of its own: Ctrl-C reaches the
// front desk alone, which then ends the workers in order.
//
// A worker sees in its stdin that the front desk died, unless it is stopped:
// so the kernel wakes it. It does so when the thread that started the worker
// ends; the main goroutine's thread ends with the process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}
