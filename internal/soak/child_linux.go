package soak

import "syscall"

// childAttr has the kernel kill a client, stopped or not, when this process dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
