//go:build !linux

package soak

import "syscall"

// childAttr sets nothing that ends a client with this process: it ends when its
// standard input does, unless it is stopped.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
