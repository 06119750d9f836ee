package delay

import (
	"syscall"
	"time"
)

// coarse is the most by which a sleep of the system is too long.
const coarse = 150 * time.Microsecond

// pause blocks the thread for d. On Linux time.Sleep rounds up to a millisecond, and
// the system's own sleep takes up to coarse longer. So pause sleeps for d minus coarse
// and then yields the core in a loop until d is over.
func pause(d time.Duration) {
	end := time.Now().Add(d)
	if d > coarse {
		request := syscall.NsecToTimespec(int64(d - coarse))
		_ = syscall.Nanosleep(&request, nil) // a signal can only end the sleep early
	}
	for time.Now().Before(end) {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
}
