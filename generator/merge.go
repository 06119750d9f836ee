package generator

import (
	"fmt"
	"go/types"
	"strconv"

	"github.com/lockgen/lockgen/templates"
)

// mostMerged is the largest number of requests that a directive can allow in a section.
const mostMerged = 10000

func readMerge(s *settings, it *item) *problem {
	n, err := strconv.Atoi(it.value)
	if err != nil || n < 2 || n > mostMerged {
		return &problem{it.valueAt, fmt.Sprintf("merge=%s: not a number from 2 to %d", it.value, mostMerged), "write merge=64"}
	}
	s.merge = n
	return nil
}

// checkMerge reports reasons why the calls of a method can't share a lock. A method of another
// package is checked by that package.
func (b *builder) checkMerge(m *method, d *directive) {
	if d.merge == 0 || m.embedder != nil {
		return
	}
	fail := func(hint, format string, args ...any) {
		b.pkg.report(d.posOf(d.items["merge"].at), hint, format, args...)
	}
	sig := m.fn.Signature()
	if m.recv == nil || m.iface != nil {
		fail("annotate a method of a struct or another type", "merge needs a wrapper that keeps those who wait, and %s is not of a type with one", m.name())
		return
	}
	req, res := mergedTypes(sig)
	switch {
	case req == nil || res == nil:
		fail("write "+m.fn.Name()+"(ctx context.Context, …, reqs []Req) ([]Res, error)",
			"merge needs a slice of requests as the last parameter of %s, and results of a slice and an error", m.name())
		return
	case b.hidden(req) || b.hidden(res):
		fail("export it there", "the wrapper of %s names the elements of its slices, and only another package can name one", m.name())
		return
	}
	whole := within()
	for _, p := range d.key.parts {
		if len(p.path) == 1 {
			whole.add(p.path[0])
		}
	}
	last := sig.Params().Len() - 1
	for i := 1; i < last; i++ {
		v := sig.Params().At(i)
		switch {
		case v.Name() == "" || v.Name() == "_":
			fail("name it, and write it into the key", "%s has a parameter without a name, which merged calls must have in common", m.name())
		case !whole.has(v.Name()):
			fail("write <"+v.Name()+"> into the key, or make it a part of the request", "the key does not name %s, which merged calls of %s must have in common", v.Name(), m.name())
		}
	}
	for _, v := range m.keys[len(m.keys)-1].roots {
		if v == sig.Params().At(last) {
			fail("name what all requests have in common", "the key names %s, which is made of the requests of several calls", v.Name())
		}
	}
	one := m.fn.Name() + "One"
	if b.has(m.recv, one) {
		b.pkg.report(m.id.Pos(), "rename that one", "%s has a %s already, which merge would have the wrapper hide", m.recv.Name(), one)
	}
	if home := b.fileOf(m.recv); b.pkg.outputOf(home) != b.pkg.outputOf(m.file) {
		fail("declare it where it is in the same builds as the type", "merge needs a field in the wrapper, and %s is not in all builds that have %s", m.name(), m.recv.Name())
	}
}

// mergedTypes returns the types of a request and of its result; nil for one that is missing.
func mergedTypes(sig *types.Signature) (req, res types.Type) {
	if n := sig.Params().Len(); n > 1 {
		req = sliceElement(sig.Params().At(n - 1).Type())
	}
	if sig.Results().Len() == 2 {
		res = sliceElement(sig.Results().At(0).Type())
	}
	return req, res
}

// sliceElement returns the type of the elements of a slice; nil for any other type.
func sliceElement(t types.Type) types.Type {
	if s, ok := types.Unalias(t).Underlying().(*types.Slice); ok && !isTypeParam(t) {
		return s.Elem()
	}
	return nil
}

// has reports whether a type has a field or method of that name, in any build.
func (b *builder) has(recv *types.TypeName, name string) bool {
	obj, _, _ := types.LookupFieldOrMethod(types.NewPointer(recv.Type()), true, b.unit.types, name)
	return obj != nil || b.pkg.members(recv.Name()).has(name)
}

// inClosures returns the types that the closures in a method's wrapper use.
func (m *method) inClosures(sig *types.Signature) []types.Type {
	d := m.directives[0]
	if !d.Leader && d.merge == 0 || sig.Params().Len() == 0 {
		return nil
	}
	out := []types.Type{sig.Params().At(0).Type(), types.Universe.Lookup("error").Type()}
	if req, res := mergedTypes(sig); d.merge > 0 && req != nil && res != nil { // otherwise that was reported
		out = append(out, req, res)
	}
	return out
}

// merger builds the field in which requests wait, and the method that takes one. It builds none
// outside the file of the wrapper, or for a promoted method if the type has such a method.
func (b *builder) merger(f *fileModel, g *guarded, gm guardedMethod, m *templates.Method, declared *templates.Wrapper, taken *scope) {
	d := gm.directives[0]
	one := gm.fn.Name() + "One"
	if d.merge == 0 || f.wrapper(g) != declared || gm.promoted() && b.has(g.recv, one) {
		return
	}
	req, res := mergedTypes(b.inTypeNames(g, gm))
	field := b.mergeField(g, gm)
	declared.Mergers = append(declared.Mergers, templates.Merger{
		Field: field, Request: f.text(req), Result: f.text(res), Policy: m.Locks[0].Policy.Var, Most: d.merge,
	})
	req, res = mergedTypes(gm.sig)
	m.One = &templates.One{
		Name:    one,
		Merger:  m.Receiver + "." + field,
		Most:    d.merge,
		Request: templates.Field{Name: taken.pick("req", "request"), Type: f.text(req)},
		Result:  templates.Field{Name: m.Results[0].Name, Type: f.text(res)},
	}
	if gm.sig.Results().At(0).Name() != "" {
		m.One.Result.Name = taken.pick("result", "res")
	}
}

// inTypeNames returns the signature of a method, written with the type parameters of the wrapper.
func (b *builder) inTypeNames(g *guarded, gm guardedMethod) *types.Signature {
	if gm.promoted() || len(g.typeNames) == 0 {
		return gm.sig
	}
	var args []types.Type
	for i, name := range g.typeNames {
		constraint := typeParamsOf(g.recv).At(i).Constraint()
		args = append(args, types.NewTypeParam(types.NewTypeName(g.recv.Pos(), b.unit.types, name, nil), constraint))
	}
	t, _ := types.Instantiate(nil, g.recv.Type(), args, false) // no error, because the type is instantiated as it is declared
	fn, _, _ := types.LookupFieldOrMethod(t, true, b.unit.types, gm.fn.Name())
	return fn.(*types.Func).Signature()
}

// mergeField names the field of the wrapper in which requests for a method wait. It hides no field
// or method of the user's type.
func (b *builder) mergeField(g *guarded, gm guardedMethod) string {
	target := g.recv.Name()
	t := thing{kind: mergerField, of: target + "." + gm.fn.Name()}
	return b.pkg.naming.pickMember(t, b.pkg.members(target), []string{g.wrapper.Alias, g.wrapper.Locker}, lowerFirst(gm.fn.Name())+"Merge")
}
