package testserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// asNobody makes cmd run as the user nobody if this process runs as root, because PostgreSQL refuses to run as root.
func asNobody(cmd *exec.Cmd) {
	if uid, gid, ok := nobody(); ok {
		runAs(cmd, uid, gid)
	}
}

func giveToNobody(dir string) error {
	if uid, gid, ok := nobody(); ok {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

func nobody() (uid, gid int, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, false
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid, true
}

// untilDetached waits until no process is attached to the shared memory that the seventh
// line of file names, if the system tells which are attached.
func untilDetached(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil
	}
	words := strings.Fields(lines[6]) // key, id
	for len(words) == 2 {
		if !attached(words[1]) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	return nil
}

func attached(id string) bool {
	table, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 6 && f[1] == id {
			return f[6] != "0"
		}
	}
	return false
}
