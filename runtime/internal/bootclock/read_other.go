//go:build !linux

package bootclock

import "time"

// ReadSystem reports that this system has no clock that Go code can read
// without cgo and that runs on in suspend.
func ReadSystem() (time.Duration, bool) { return 0, false }
