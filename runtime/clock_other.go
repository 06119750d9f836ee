//go:build !linux

package lock

import "time"

// readBoottime reports that this system has no clock that Go code can read
// without cgo and that runs on in suspend.
func readBoottime() (time.Duration, bool) { return 0, false }
