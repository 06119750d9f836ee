package generator

import (
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// guard returns the signature of a method or function as the output expects it, and the expression
// that has it.
func (f *fileModel) guard(m *method) templates.Guard {
	sig, params := m.fn.Signature(), slices.Collect(m.typeParams().TypeParams())
	g := templates.Guard{Func: m.fn.Name()}
	for i, p := range params {
		g.TypeParams = append(g.TypeParams, templates.Field{Name: m.typeNames[i], Type: f.text(p.Constraint())})
	}
	var recv []string
	if m.recv != nil {
		self := m.recv.Name()
		if len(m.typeNames) > 0 {
			self += "[" + strings.Join(m.typeNames, ", ") + "]"
		}
		if v := m.receiver(); v != nil && isPointer(v.Type()) {
			self = "*" + self
		}
		recv = []string{self}
		g.Func = self + "." + m.fn.Name()
		if self[0] == '*' {
			g.Func = "(" + self + ")." + m.fn.Name()
		}
	} else if len(m.typeNames) > 0 {
		g.Func += "[" + strings.Join(m.typeNames, ", ") + "]"
	}
	g.Type = "func(" + strings.Join(append(recv, f.paramTypes(sig)...), ", ") + ")" + f.resultTypes(sig)
	return g
}

// paramTypes returns the types of the parameters without their names.
func (f *fileModel) paramTypes(sig *types.Signature) []string {
	var out []string
	for v := range sig.Params().Variables() {
		out = append(out, f.text(v.Type()))
	}
	if sig.Variadic() {
		last := sig.Params().At(sig.Params().Len() - 1).Type()
		out[len(out)-1] = "..." + f.text(last.(*types.Slice).Elem())
	}
	return out
}

func (f *fileModel) resultTypes(sig *types.Signature) string {
	var out []string
	for v := range sig.Results().Variables() {
		out = append(out, f.text(v.Type()))
	}
	if len(out) == 1 {
		return " " + out[0]
	}
	return " (" + strings.Join(out, ", ") + ")"
}
