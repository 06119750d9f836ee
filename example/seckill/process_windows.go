package main

import "syscall"

// ownGroup starts a worker in a process group of its own. So Ctrl-C reaches only the front desk,
// which then ends the workers in order.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
