// Lockgen writes the wrappers that //lock: directives ask for.
package main

import (
	"os"
	"runtime/debug"

	// What is generated imports it, so that go mod vendor has to bring it with the
	// tool: before the first run nothing else asks for it.
	_ "github.com/lockgen/lockgen/runtime"
)

func main() {
	serveVet(os.Args[1:])
	debug.SetGCPercent(400) // a run is short: rather memory than time
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
