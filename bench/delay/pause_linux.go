package delay

import (
	"syscall"
	"time"
)

// coarse is by how much a pause of the system may be too long.
const coarse = 150 * time.Microsecond

// pause blocks the thread for d. time.Sleep rounds up to a millisecond here, and
// the system's own sleep takes up to coarse longer. The rest is spent by offering
// the core to others.
func pause(d time.Duration) {
	end := time.Now().Add(d)
	if d > coarse {
		request := syscall.NsecToTimespec(int64(d - coarse))
		_ = syscall.Nanosleep(&request, nil) // a signal only ends it early
	}
	for time.Now().Before(end) {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
}
