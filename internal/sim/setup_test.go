package sim

import "testing"

// TestChosenKinds checks that a plan has only faults of the chosen kinds.
func TestChosenKinds(t *testing.T) {
	for _, c := range []Choice{
		{Engine: "quorum", Kinds: []string{"empty-members"}},
		{Engine: "failover", Kinds: []string{"differ"}},
		{Engine: "sharded", Kinds: []string{"new-version", "set-back"}},
	} {
		for seed := range uint64(200) {
			for _, f := range NewPlan(seed, c).Faults {
				if f.Kind != c.Kinds[0] && f.Kind != c.Kinds[len(c.Kinds)-1] {
					t.Fatalf("seed %d of %+v: %v", seed, c, f)
				}
			}
		}
	}
}
