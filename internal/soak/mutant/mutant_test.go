package mutant

import (
	"slices"
	"testing"
)

// TestMutants checks only that each mistake can still be made, and compiles. The runs take a
// minute or two each; the command makes them.
func TestMutants(t *testing.T) {
	for _, err := range Check("../../..", t.TempDir(), slices.Concat(All, OfKinds, OfExtras)) {
		t.Error(err)
	}
}
