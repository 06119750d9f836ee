// Lockgen writes the wrappers that //lock: directives ask for.
package main

import (
	"os"
	"runtime/debug"
)

func main() {
	debug.SetGCPercent(400) // a run is short: rather memory than time
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
