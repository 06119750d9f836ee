package bootclock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2): CLOCK_MONOTONIC, which Go's runtime reads,
// plus the time for which the machine was suspended.
const clockBoottime = 7

// ReadSystem returns the machine's boot clock, and whether it has one.
func ReadSystem() (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
