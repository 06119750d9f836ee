package backendtest

import "testing"

// A row with SameAs runs only the behaviours that its topology can change.
func TestSameAs(t *testing.T) {
	for row, changed := range map[string]int{"": len(behaviours()), "redis": 4} {
		s := &suite{h: &Harness{SameAs: row}}
		n := 0
		for _, b := range behaviours() {
			ability, reason := s.missing(b.name, check{})
			switch {
			case ability == "":
				n++
			case ability != topology || reason == "":
				t.Errorf("%s is left out because of %q: %q", b.name, ability, reason)
			}
		}
		if n != changed {
			t.Errorf("SameAs %q: %d behaviours are checked, want %d", row, n, changed)
		}
	}
}
