package generator

import (
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// nameTypeParams names the type parameters with which the method is written, and blank ones as the
// type's declaration does. A generated name hides nothing that the package declares, because the
// signature may name it.
func (m *method) nameTypeParams() {
	taken := within(m.unit.pkg.naming.declared)
	taken.addAll(signatureNames(m.fn.Signature()))
	var declared *types.TypeParamList
	if m.recv != nil {
		declared = typeParamsOf(m.recv)
	}
	for p := range m.typeParams().TypeParams() {
		name := p.Obj().Name()
		if name == "_" {
			candidates := []string{"T"}
			if declared != nil {
				candidates = []string{declared.At(p.Index()).Obj().Name(), "T"}
			}
			name = taken.pick(candidates...)
		}
		m.typeNames = append(m.typeNames, name)
	}
}

// nameTypeParams names the type parameters with which the wrapper is written.
func (g *guarded) nameTypeParams(declared *scope) {
	taken := within(declared)
	for p := range typeParamsOf(g.recv).TypeParams() {
		taken.add(p.Obj().Name())
	}
	for _, m := range g.methods {
		taken.addAll(signatureNames(m.sig))
	}
	for p := range typeParamsOf(g.recv).TypeParams() {
		name := p.Obj().Name()
		if name == "_" {
			name = taken.pick("T")
		}
		g.typeNames = append(g.typeNames, name)
	}
}

// checkTypeParams reports type parameters that hide a name only in generated code. A method may
// name the type parameters of its type as it likes, and a promoted method was written where they
// are not in scope.
func (b *builder) checkTypeParams() {
	for _, g := range b.guarded {
		for _, name := range []string{g.recv.Name(), g.wrapper.Name} {
			if slices.Contains(g.typeNames, name) {
				b.reportHiding(g.recv.Pos(), g.recv.Name(), name, "the generated code")
			}
		}
		for _, gm := range g.methods {
			if !gm.promoted() && gm.iface == nil {
				b.checkReceiver(gm.method)
				continue
			}
			by := "the wrapper of " + g.recv.Name() + "." + gm.fn.Name()
			beside := b.bareNames(gm.sig)
			beside.addAll(variableNames(gm.sig))
			for _, name := range g.typeNames {
				if beside.has(name) {
					b.reportHiding(g.recv.Pos(), g.recv.Name(), name, by)
				}
			}
		}
	}
}

// checkReceiver checks the generated declarations that repeat the receiver's type parameters with
// the method's names for them, and with the constraints of the type.
func (b *builder) checkReceiver(m *method) {
	beside := within()
	beside.add(m.recv.Name())
	for p := range m.typeParams().TypeParams() {
		beside.addAll(b.bareNames(p.Constraint()))
		blank := func(t types.Type) bool { q, ok := t.(*types.TypeParam); return ok && q.Obj().Name() == "_" }
		if written(p.Constraint(), blank) {
			b.pkg.report(m.id.Pos(), "write "+m.recv.Name()+"["+strings.Join(m.typeNames, ", ")+"]",
				"the receiver of %s has _ for a type parameter that the constraint of another one names", m.name())
		}
	}
	for _, name := range m.typeNames {
		if beside.has(name) {
			b.reportHiding(m.id.Pos(), m.name(), name, "the generated code")
		}
	}
}

// checkKeyTypeParams reports type parameters and package-level declarations that hide a predeclared
// name that a key function uses.
func (b *builder) checkKeyTypeParams(m *method, k templates.KeyFunc) {
	beside := within()
	beside.add("string")
	if k.Err != "" {
		beside.add("error", "nil")
	}
	if k.Each != nil {
		beside.add("make", "len")
	}
	for _, p := range k.Parts {
		beside.add(map[templates.PartKind]string{templates.Int: "int64", templates.Uint: "uint64", templates.Bool: "bool"}[p.Kind])
	}
	for _, p := range k.TypeParams {
		if beside.has(p.Name) {
			b.reportHiding(m.id.Pos(), m.name(), p.Name, "its key function")
		}
	}
	beside.add("nil", "true") // the wrapper and the policy use them
	for _, name := range sortedKeys(beside.own) {
		if at := b.known[name].declared; at != "" {
			b.pkg.report(m.id.Pos(), "rename that one", "%s is declared at %s, and the generated code of %s needs Go's own", name, at, m.name())
		}
	}
}

func (b *builder) reportHiding(pos token.Pos, of, name, by string) {
	b.pkg.report(pos, "rename that type parameter", "a type parameter of %s hides %s, which %s names", of, name, by)
}

// bareNames returns the types that the text of t names without a package.
func (b *builder) bareNames(t types.Type) *scope {
	out := within()
	spelled(t, func(t types.Type) bool {
		switch t := t.(type) {
		case *types.TypeParam:
		case *types.Basic:
			if t.Kind() != types.UnsafePointer {
				out.add(t.Name())
			}
		case interface{ Obj() *types.TypeName }: // named, alias
			if p := t.Obj().Pkg(); p == nil || p == b.unit.types {
				out.add(t.Obj().Name())
			}
		}
		return false
	})
	return out
}
