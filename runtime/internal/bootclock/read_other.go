//go:build !linux

package bootclock

import "time"

// ReadSystem reports that Go code without cgo can read no clock on this system that runs during
// suspend.
func ReadSystem() (time.Duration, bool) { return 0, false }
