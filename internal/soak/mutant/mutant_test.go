package mutant

import (
	"slices"
	"testing"
)

// TestMutantsApply checks only that each mistake can still be made. The runs take a minute or two each;
// the command makes them.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(All, OfKinds, OfExtras) {
		t.Run(m.Name, func(t *testing.T) {
			copied := t.TempDir()
			if err := Copy("../../..", copied, "runtime"); err != nil {
				t.Fatal(err)
			}
			if err := m.Apply(copied); err != nil {
				t.Error(err)
			}
		})
	}
}
