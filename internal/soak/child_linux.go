package soak

import "syscall"

// childAttr makes the kernel kill a client, even a stopped one, when this process dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
