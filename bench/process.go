package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: 100 a second on every Linux.
const tick = time.Second / 100

// cpuOf returns the CPU time of the process pid.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The process's name, in parentheses, may contain any character. Field 3 follows it.
	rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(errUser, errSystem)
}

// listenerOf returns the ID of the process on this machine that listens on the port of addr.
// It returns 0 if it finds none: the server is on another machine, or the system has no /proc.
func listenerOf(addr string) int {
	host, port, _ := net.SplitHostPort(addr)
	number, err := strconv.Atoi(port)
	if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return 0
	}
	sockets := map[string]bool{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // sl, local address, remote address, state, …, inode
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range open {
		if socket, err := os.Readlink(fd); err == nil && sockets[socket] {
			pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
			return pid
		}
	}
	return 0
}
