package main

import (
	"testing"

	"github.com/lockgen/lockgen/internal/soak/mutant"
)

// TestMutants checks only that each mistake can still be made, and compiles. A search may
// take three minutes; the command makes them.
func TestMutants(t *testing.T) {
	for _, err := range mutant.Check("../../..", t.TempDir(), more) {
		t.Error(err)
	}
}
