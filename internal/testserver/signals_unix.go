//go:build unix

package testserver

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the process into a group of its own, so that it does not get the terminal's signals.
func ownGroup(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func runAs(cmd *exec.Cmd, uid, gid int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func freeze(pid int) error      { return syscall.Kill(pid, syscall.SIGSTOP) }
func thaw(pid int) error        { return syscall.Kill(pid, syscall.SIGCONT) }
func killProcess(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
