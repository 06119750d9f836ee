package generator

import "go/types"

// checkSkip warns of a result that is nil together with a nil error if the method is skipped,
// because a caller may not be able to use it. The zero values of other types can be used.
func (b *builder) checkSkip(m *method, d *directive) {
	if !d.Skip || m.embedder != nil || d != m.directives[0] {
		return
	}
	results := m.fn.Signature().Results()
	for i := range results.Len() - 1 {
		t := results.At(i).Type()
		if !nilIsOfNoUse(t) {
			continue
		}
		b.pkg.warn(d.posOf(d.items["skip"].at), "return a bool that says whether it ran, or leave out skip: then it is lock.ErrNotAcquired",
			"where nothing runs, %s returns a nil %s and no error", m.name(), types.TypeString(t, types.RelativeTo(b.unit.types)))
		return
	}
}

func nilIsOfNoUse(t types.Type) bool {
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return false
	}
	switch t.Underlying().(type) {
	case *types.Pointer, *types.Interface, *types.Chan, *types.Signature:
		return true
	}
	return false
}
