//go:build !unix

package testserver

import (
	"errors"
	"os/exec"
	"syscall"
)

// A system without Unix's signals can't stop a process and let it go on. Servers are
// started there all the same, as children of this process alone.

func ownGroup(*syscall.SysProcAttr)      {}
func dieWithParent(*syscall.SysProcAttr) {}
func runAs(*exec.Cmd, int, int)          {} // nobody is root there
func freeze(int) error                   { return errors.ErrUnsupported }
func thaw(int) error                     { return errors.ErrUnsupported }
func killProcess(int) error              { return errors.ErrUnsupported }
func isStopped(int) (bool, error)        { return false, errors.ErrUnsupported }
func childrenOf(int) []int               { return nil }
