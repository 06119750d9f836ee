// Lockgen writes the wrappers that //lock: directives ask for.
package main

import (
	"os"
	"runtime/debug"

	// Generated code imports this package. Before the first run no code of a user does, so
	// go mod vendor copies it only because the tool imports it.
	_ "github.com/lockgen/lockgen/runtime"
)

func main() {
	serveVet(os.Args[1:])
	debug.SetGCPercent(400) // a run is short: trade memory for time
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
