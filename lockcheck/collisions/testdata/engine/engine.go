// Package engine need not say it again, but for what its engine makes of a /.
package engine // want `"jobs" of paths.Jobs can be "jobs/", a path above a key that "jobs/<name>" of paths.Job \(paths.go:\d+\) makes, and this program locks by zklock`

import (
	_ "example.com/collisions/join"
	_ "example.com/collisions/paths"
	_ "example.com/collisions/zklock"
)
