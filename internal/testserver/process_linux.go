package testserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the server when this process dies, even by
// kill -9, which leaves no time to clean up.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// isStopped reports whether the process is stopped by a signal, or has ended and was not waited for.
func isStopped(pid int) (bool, error) {
	state, _, err := status(fmt.Sprintf("/proc/%d/stat", pid))
	return state == "T" || state == "Z", err
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		if _, parent, err := status(file); err == nil && parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, child)
		}
	}
	return children
}

// status returns the state and the parent from the stat file of a process.
func status(file string) (state string, parent int, err error) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	// Both follow the command's name, which may contain parentheses.
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
	return state, parent, err
}
