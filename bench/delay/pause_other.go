//go:build !linux

package delay

import (
	"runtime"
	"time"
)

// coarse is the most by which a sleep is too long.
const coarse = 2 * time.Millisecond

// pause waits for d. For the last part it yields to other goroutines in a loop.
func pause(d time.Duration) {
	end := time.Now().Add(d)
	if d > coarse {
		time.Sleep(d - coarse)
	}
	for time.Now().Before(end) {
		runtime.Gosched()
	}
}
