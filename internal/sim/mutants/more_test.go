package main

import (
	"testing"

	"github.com/lockgen/lockgen/internal/soak/mutant"
)

// TestMutantsApply checks only that each mistake can still be made. The searches take a minute each;
// the command makes them.
func TestMutantsApply(t *testing.T) {
	for _, m := range more {
		t.Run(m.Name, func(t *testing.T) {
			copied := t.TempDir()
			if err := mutant.Copy("../../..", copied, "runtime"); err != nil {
				t.Fatal(err)
			}
			if err := m.Apply(copied); err != nil {
				t.Error(err)
			}
		})
	}
}
