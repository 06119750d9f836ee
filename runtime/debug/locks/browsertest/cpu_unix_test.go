//go:build unix

package browsertest

import (
	"syscall"
	"time"
)

// cpu returns the time that this process has computed, without the browser.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
