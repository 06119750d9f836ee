package main

import "testing"

// The runs themselves take a minute or two each: that is what the command is for.
// Here only that each mistake can still be made.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			copied := t.TempDir()
			if err := copyTree("../../..", copied); err != nil {
				t.Fatal(err)
			}
			if err := m.apply(copied); err != nil {
				t.Error(err)
			}
		})
	}
}
