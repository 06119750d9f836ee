package generator

import (
	"go/types"
	"regexp"
)

// checkLeader reports a method that can't be called again and again.
func (b *builder) checkLeader(m *method, d *directive) {
	if d.Leader && m.embedder == nil && m.fn.Signature().Results().Len() > 1 {
		b.pkg.report(d.posOf(d.items["leader"].at), "return the error alone", "%s has results, and a leader is called again after an error", m.name())
	}
}

var identifierInType = regexp.MustCompile(`[\pL_][\pL\p{Nd}_]*`)

// checkClosure reports parameters that hide names that a closure in the wrapper uses.
func (b *builder) checkClosure(m *method, sig *types.Signature) {
	users := variableNames(sig)
	for _, name := range sortedKeys(b.namedIn(m.inClosures(sig)).own) {
		if users.has(name) {
			b.pkg.report(m.id.Pos(), "rename that parameter", "a parameter of %s hides %s, which its wrapper names", m.name(), name)
		}
	}
}

// namedIn returns the identifiers in the types as the output spells them.
func (b *builder) namedIn(list []types.Type) *scope {
	out := within()
	for _, t := range list {
		text := types.TypeString(t, func(p *types.Package) string {
			if p == b.unit.types {
				return ""
			}
			return b.imports.name(p.Path())
		})
		out.add(identifierInType.FindAllString(text, -1)...)
	}
	return out
}
