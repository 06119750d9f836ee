//go:build !unix

package testserver

import (
	"errors"
	"os/exec"
	"syscall"
)

// A system without Unix's signals can't stop and continue a process. Servers can still be
// started there, as plain child processes of this process.

func ownGroup(*syscall.SysProcAttr)      {}
func dieWithParent(*syscall.SysProcAttr) {}
func runAs(*exec.Cmd, int, int)          {} // there is no root user
func freeze(int) error                   { return errors.ErrUnsupported }
func thaw(int) error                     { return errors.ErrUnsupported }
func killProcess(int) error              { return errors.ErrUnsupported }
func isStopped(int) (bool, error)        { return false, errors.ErrUnsupported }
func childrenOf(int) []int               { return nil }
