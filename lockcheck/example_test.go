package lockcheck_test

import (
	"fmt"

	"github.com/lockgen/lockgen/lockcheck"
)

// A vet tool of your own has the checks beside others: unitchecker.Main takes them.
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
