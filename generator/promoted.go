package generator

import (
	"fmt"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// promotedMethods returns the annotated methods of embedded types. Through the wrapper's embedded
// type they would be called without their lock. Methods that another package declares get a lock of
// their own here, with the same key. A method that is reached through a wrapper has its lock
// already.
func (b *builder) promotedMethods(g *guarded) []guardedMethod {
	var out []guardedMethod
	add := func(from types.Type, fn *types.Func, gm guardedMethod) {
		declared := b.declarations(g, from, fn)
		if len(declared) == 0 || !b.agree(g, declared) {
			return
		}
		if declared[0] != fn { // its parameters may have other names
			fn, gm.sig = declared[0], declared[0].Signature()
		}
		if gm.method = b.annotated[fn.Origin()]; gm.method == nil {
			gm.method = b.foreignMethod(g, fn, gm.path)
		}
		if gm.method != nil && (gm.method.embedder != nil || gm.recv != g.recv) {
			out = append(out, gm)
		}
	}
	recv := g.recv.Type()
	if isInterface(g.recv) {
		for fn := range recv.Underlying().(*types.Interface).Methods() {
			add(recv, fn, guardedMethod{sig: fn.Signature(), from: g})
		}
		return out
	}
	set := types.NewMethodSet(types.NewPointer(recv))
	for sel := range set.Methods() {
		fn, ok := sel.Obj().(*types.Func)
		if !ok || len(sel.Index()) < 2 {
			continue
		}
		gm := guardedMethod{sig: sel.Type().(*types.Signature), path: embeddedFields(recv, sel.Index()[:len(sel.Index())-1])}
		if !slices.ContainsFunc(gm.path, b.unit.inStub) && !b.wrapped(g, recv, fn.Name(), len(gm.path)) {
			add(gm.path[len(gm.path)-1].Type(), fn, gm)
		}
	}
	return out
}

// declarations returns the declarations of t's method fn that have directives. An interface can
// have the method from several interfaces that it embeds, of which go/types knows only the first.
func (b *builder) declarations(g *guarded, t types.Type, fn *types.Func) (out []*types.Func) {
	iface, ok := t.Underlying().(*types.Interface)
	if !ok {
		if b.targetOf(g, fn) != nil {
			out = append(out, fn)
		}
		return out
	}
	for own := range iface.ExplicitMethods() {
		if own.Id() == fn.Id() && b.targetOf(g, own) != nil {
			return []*types.Func{own}
		}
	}
	for embedded := range iface.EmbeddedTypes() {
		out = append(out, b.declarations(g, embedded, fn)...)
	}
	return out
}

// agree reports whether the directives of these declarations of one method ask for the same locks.
func (b *builder) agree(g *guarded, declared []*types.Func) bool {
	first := b.targetOf(g, declared[0])
	for _, fn := range declared[1:] {
		if other := b.targetOf(g, fn); !slices.Equal(b.asked(other, fn), b.asked(first, declared[0])) {
			b.pkg.report(g.recv.Pos(), "declare a method "+fn.Name()+" of "+g.recv.Name()+" with a directive of its own",
				"%s has %s from %s and from %s, whose directives differ", g.recv.Name(), fn.Name(), first.owner(), other.owner())
			return false
		}
	}
	return true
}

// asked returns what the directives of the method fn ask for, in a form that depends neither on
// their spelling nor on the names of parameters.
func (b *builder) asked(t *target, fn *types.Func) (out []string) {
	order := map[string]int{}
	for i := range fn.Signature().Params().Len() {
		order[fn.Signature().Params().At(i).Name()] = i
	}
	numbered := func(in pattern) string {
		text := ""
		for _, p := range in.parts {
			if p.isPlaceholder() {
				text += fmt.Sprint(order[p.path[0]], p.path[1:], p.each)
			} else {
				text += strconv.Quote(p.literal)
			}
		}
		return text
	}
	for _, d := range t.directives {
		l := b.pkg.lock(t, d)
		l.Key, l.Tick = numbered(d.key), numbered(d.tick)
		out = append(out, l.Text())
	}
	return out
}

// wrapped reports whether a wrapper that t embeds at that depth will have a method of that name,
// which the wrapper's stub does not have.
func (b *builder) wrapped(g *guarded, t types.Type, method string, depth int) bool {
	s := structOf(t)
	if s == nil || depth == 0 {
		return false
	}
	for f := range s.Fields() {
		switch inner := structOf(f.Type()); {
		case !f.Embedded():
		case depth > 1 && b.wrapped(g, f.Type(), method, depth-1):
			return true
		case depth == 1 && inner != nil && inner.NumFields() == 1 && b.unit.inStub(inner.Field(0)):
			at := inner.Field(0).Type()
			obj, index, _ := types.LookupFieldOrMethod(at, true, b.unit.types, method)
			fn, ok := obj.(*types.Func)
			if !ok {
				continue
			}
			for _, field := range embeddedFields(at, index[:len(index)-1]) {
				at = field.Type()
			}
			if slices.ContainsFunc(b.declarations(g, at, fn), func(fn *types.Func) bool { return b.annotated[fn.Origin()] != nil }) {
				return true
			}
		}
	}
	return false
}

// targetOf returns the target of the method fn, or nil if it has no directives.
func (b *builder) targetOf(g *guarded, fn *types.Func) *target {
	if m := b.annotated[fn.Origin()]; m != nil {
		return m.target
	}
	named := receiverType(fn)
	if named == nil || fn.Pkg() == nil || fn.Pkg() == b.unit.types || b.pkg.run.exports != nil && b.unknown(g, fn) {
		return nil
	}
	targets := b.unit.foreignTargets(fn.Pkg().Path())[named.Obj().Name()+"."+fn.Name()]
	if i := slices.IndexFunc(targets, func(t *target) bool { return b.unit.selects(t.file) }); i >= 0 {
		return targets[i]
	}
	return nil
}

func receiverType(fn *types.Func) *types.Named {
	named, _ := types.Unalias(pointee(fn.Signature().Recv().Type())).(*types.Named)
	return named
}

// foreignMethod returns fn, an annotated method of another package's type, as a method of g. If its
// lock can't be taken from here, it warns and returns nil.
func (b *builder) foreignMethod(g *guarded, fn *types.Func, path []*types.Var) *method {
	t, named := b.targetOf(g, fn), receiverType(fn)
	m := &method{target: t, unit: b.unit, fn: fn, recv: g.recv, embedder: g.file}
	if why := b.unreachable(m, named, path); why != "" {
		hint := "declare a method " + fn.Name() + " of " + g.recv.Name() + " with a directive of its own"
		if !fn.Exported() { // a method of that name declared here would be another method
			hint = "export it"
		}
		b.pkg.warn(g.recv.Pos(), hint, "%s.%s is called without the lock of %s.%s: %s", g.recv.Name(), fn.Name(), fn.Pkg().Name(), named.Obj().Name()+"."+fn.Name(), why)
		return nil
	}
	b.foreign = append(b.foreign, m)
	return m
}

// unknown reports a method that may have a directive, in a package whose files a build system did
// not pass: it would be called without its lock.
func (b *builder) unknown(g *guarded, fn *types.Func) bool {
	path, sig := fn.Pkg().Path(), fn.Signature()
	switch {
	case len(b.pkg.run.exports.sources[path]) > 0:
		return false
	case !lockable(sig), !fn.Exported(), path == RuntimePath, isStandard(path):
		return true
	}
	b.pkg.report(g.recv.Pos(), "write them into "+filepath.Base(b.pkg.run.exports.path)+": sourcefile "+path+"=FILE for each",
		"%s has methods from %s, whose files are not given: a directive there would be lost", g.recv.Name(), path)
	return true
}

// lockable reports whether a method can have a directive.
func lockable(sig *types.Signature) bool {
	params, results := sig.Params(), sig.Results()
	return params.Len() > 0 && isContext(params.At(0).Type()) && results.Len() > 0 && isError(results.At(results.Len()-1).Type())
}

// unreachable says why the lock of a foreign method can't be taken from here.
func (b *builder) unreachable(m *method, recv *types.Named, path []*types.Var) string {
	sig := m.fn.Signature()
	if recv.TypeArgs().Len() > 0 || recv.TypeParams().Len() > 0 {
		return "its type is generic"
	}
	if !lockable(sig) {
		return "its directive has a mistake"
	}
	if !m.fn.Exported() {
		return "only that package can name it"
	}
	if b.hidden(sig) || slices.ContainsFunc(m.inClosures(sig), b.hidden) {
		return "its signature names what can't be named from here"
	}
	hiddenField := slices.ContainsFunc(path, func(f *types.Var) bool { return !f.Exported() && f.Pkg() != b.unit.types })
	for _, d := range m.directives {
		req, res := mergedTypes(sig)
		if d.wrong || d.merge > 0 && (req == nil || res == nil) {
			return "its directive has a mistake"
		}
		if d.fallback != "" && !token.IsExported(d.fallback) {
			return "only that package can name its fallback " + d.fallback
		}
		if d.fallback != "" && hiddenField {
			return "only that package can name the field through which its fallback " + d.fallback + " is called"
		}
		taken := within()
		params := m.keyParams(taken)
		key, tick := m.resolveKey(d, params, taken), m.resolveTick(d, params, taken)
		unseen := len(key.problems)+len(tick.problems) > 0
		if slices.Contains(key.roots, m.receiver()) || slices.Contains(tick.roots, m.receiver()) {
			unseen = unseen || hiddenField || b.hidden(m.receiver().Type())
		}
		if unseen {
			return "its key " + d.key.text + " names what only that package can see" // or its tick
		}
	}
	return ""
}

// hidden reports whether the text of a foreign type can't be written in this package: something in
// it is unexported there, or belongs to an internal package that can't be imported from here, which
// go/types does not know.
func (b *builder) hidden(t types.Type) bool {
	from := b.pkg.path
	if b.pkg.external {
		from = b.pkg.tested.path
	}
	unexported := func(o types.Object) bool { return !o.Exported() && o.Pkg() != nil && o.Pkg() != b.unit.types }
	return spelled(t, func(t types.Type) bool {
		switch t := t.(type) {
		case interface{ Obj() *types.TypeName }: // named, alias
			return unexported(t.Obj()) || t.Obj().Pkg() != nil && !importable(t.Obj().Pkg().Path(), from)
		case *types.Struct:
			for f := range t.Fields() {
				if unexported(f) {
					return true
				}
			}
		case *types.Interface:
			for f := range t.ExplicitMethods() {
				if unexported(f) {
					return true
				}
			}
		}
		return false
	})
}

// importable follows the go command's rule for internal packages: only packages below the parent of
// the last such folder can import them.
func importable(path, from string) bool {
	i := strings.LastIndex("/"+path+"/", "/internal/")
	if i < 0 {
		return true
	}
	parent := path[:max(i-1, 0)]
	return strings.HasPrefix(from+"/", parent+"/")
}
