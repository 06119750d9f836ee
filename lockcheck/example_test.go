package lockcheck_test

import (
	"fmt"

	"github.com/lockgen/lockgen/lockcheck"
)

// A vet tool of your own passes these checks, and others, to unitchecker.Main.
func ExampleAnalyzers() {
	for _, check := range lockcheck.Analyzers() {
		fmt.Println(check.Name)
	}
	// Output:
	// bypass
	// collisions
	// errlost
	// fencing
	// lostctx
	// nearmiss
	// order
	// readwrite
	// scope
}
