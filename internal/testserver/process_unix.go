//go:build unix && !linux

package testserver

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithParent does nothing, because only Linux has a parent-death signal. After a
// kill -9 of the tests their servers must be ended by hand.
func dieWithParent(*syscall.SysProcAttr) {}

// isStopped reports whether the process is stopped by a signal, or has ended and was not waited for.
func isStopped(pid int) (bool, error) {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	state = bytes.TrimSpace(state)
	return bytes.HasPrefix(state, []byte("T")) || bytes.HasPrefix(state, []byte("Z")), err
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) (children []int) {
	list, _ := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	for word := range bytes.FieldsSeq(list) {
		child, _ := strconv.Atoi(string(word))
		children = append(children, child)
	}
	return children
}
