//go:build !linux

package soak

import "syscall"

// childAttr does not make a client end with this process. A client ends when its
// standard input ends, unless it is stopped.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
