//go:build !linux

package delay

import (
	"runtime"
	"time"
)

// coarse is by how much a sleep may be too long.
const coarse = 2 * time.Millisecond

// pause waits for d; the last part is spent by offering the core to other goroutines.
func pause(d time.Duration) {
	end := time.Now().Add(d)
	if d > coarse {
		time.Sleep(d - coarse)
	}
	for time.Now().Before(end) {
		runtime.Gosched()
	}
}
