package generator

import (
	"go/types"
	"slices"
)

// checkFallback reports a fallback that can't be called in place of m. A method m of another
// package is checked by that package.
func (b *builder) checkFallback(m *method, d *directive) {
	if d.fallback == "" || m.embedder != nil || d.wrong {
		return
	}
	at := d.posOf(d.items["fallback"].valueAt)
	what := "fallback=" + d.fallback
	obj := m.beside(d.fallback)
	fn, ok := obj.(*types.Func)
	switch {
	case !ok && obj != nil:
		b.pkg.report(at, "declare one like "+m.fn.Name(), "%s is no %s", what, m.what())
	case !ok:
		b.pkg.report(at, m.nearFallback(d.fallback), "%s: %s", what, m.hasNo(d.fallback))
	case b.annotated[fn.Origin()] != nil:
		b.pkg.report(at, "name one without, as it is called because a lock was not to be had", "%s: %s has a directive itself", what, m.ownerName(".")+fn.Name())
	case !types.Identical(fn.Signature(), m.fn.Signature()):
		b.pkg.report(at, "it needs "+b.described(m.fn.Signature()), "%s has other parameters or results than %s", what, m.name())
	case m.recv == nil && signatureNames(m.fn.Signature()).has(d.fallback):
		b.pkg.report(at, "rename that parameter", "%s: a parameter of %s hides it", what, m.name())
	}
}

// beside returns the method with that name of m's type, with m's names for its type parameters; or,
// if m is a function, the function with that name. It returns nil if there is none.
func (m *method) beside(name string) types.Object {
	pkg := m.unit.types
	if m.recv == nil {
		return pkg.Scope().Lookup(name)
	}
	t := m.recv.Type()
	if m.iface == nil {
		var args []types.Type
		for p := range m.typeParams().TypeParams() {
			args = append(args, p)
		}
		if args != nil {
			t, _ = types.Instantiate(nil, t, args, false) // no error, because the type is instantiated as it is declared
		}
		t = types.NewPointer(t)
	}
	obj, _, _ := types.LookupFieldOrMethod(t, true, pkg, name)
	return obj
}

func (m *method) hasNo(fallback string) string {
	if m.recv == nil {
		return "the package has no function " + fallback
	}
	return m.recv.Name() + " has no method " + fallback
}

// nearFallback returns the hint if there is no fallback of that name.
func (m *method) nearFallback(name string) string {
	var have []string
	if m.recv == nil {
		for _, other := range m.unit.types.Scope().Names() {
			if _, ok := m.unit.types.Scope().Lookup(other).(*types.Func); ok {
				have = append(have, other)
			}
		}
	} else {
		have = sortedKeys(m.unit.pkg.members(m.recv.Name()).own)
	}
	have = slices.DeleteFunc(have, func(s string) bool { return s == m.fn.Name() })
	if near := nearest(name, have); near != "" {
		return "did you mean " + near + "?"
	}
	return "it is called where another holds the lock; declare it like " + m.fn.Name()
}

// described returns the text of a type for messages.
func (b *builder) described(t types.Type) string {
	return types.TypeString(t, types.RelativeTo(b.unit.types))
}

// fallbackOf returns what the wrapper calls if the lock of a method was not acquired.
func fallbackOf(g *guarded, gm guardedMethod, receiver string) string {
	name := gm.directives[0].fallback
	if name == "" {
		return ""
	}
	callee := receiver + "." + g.wrapper.Alias
	for _, field := range gm.path {
		callee += "." + field.Name()
	}
	return callee + "." + name
}
