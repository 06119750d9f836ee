//go:build !unix

// Command lesson needs a system that can stop a process and let it continue.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "lesson: this system can't stop a process and let it go on; run it on Linux or macOS")
	os.Exit(1)
}
