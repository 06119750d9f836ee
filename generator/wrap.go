package generator

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// nameWrapper names the declarations that callers of a guarded type see, and the embedded field of
// the wrapper.
func (b *builder) nameWrapper(g *guarded) {
	target := g.recv.Name()
	w := &g.wrapper
	w.Target = target
	w.Pointer = !isInterface(g.recv)
	w.Name = target + "WithLock"
	w.Constructor = "New" + w.Name
	if !g.recv.Exported() {
		w.Constructor = "new" + upperFirst(w.Name)
	}
	pos := g.recv.Pos()
	if len(g.methods) > 0 {
		pos = g.methods[0].id.Pos()
	}
	b.claim(pos, w.Name, "the wrapper of "+target)
	b.claim(pos, w.Constructor, "the constructor of "+w.Name)

	// A generated field would hide a field or method of that name of the user's type.
	members := b.pkg.members(target)
	w.Alias = b.pkg.innerAlias(target)
	w.Locker = b.pkg.naming.pickMember(thing{kind: lockerField, of: target}, members, []string{w.Alias}, "locker", "lockgenLocker")

	params := within()
	params.add(g.typeNames...)
	for _, m := range g.methods {
		params.addAll(b.namedIn(m.inClosures(m.sig)))
	}
	w.Inner = params.pick("inner")
	w.LockerParam = params.pick("locker")
}

// wrappers builds the models of all guarded types and functions, each in the file of the builds
// that have all that it repeats.
func (b *builder) wrappers() {
	for _, g := range b.guarded {
		home := b.in(g.file)
		w := home.wrapper(g)
		w.Declared = true
		home.use(RuntimePath)
		for i, p := range slices.Collect(typeParamsOf(g.recv).TypeParams()) {
			w.TypeParams = append(w.TypeParams, templates.Field{Name: g.typeNames[i], Type: home.text(p.Constraint())})
		}
		if len(w.TypeParams) > 0 {
			home.Constraint = constraintText(withGenericAlias(b.pkg.outputOf(g.file).when))
		}
		receivers := within()
		for _, m := range g.methods {
			receivers.addAll(signatureNames(m.sig))
			receivers.addAll(b.namedIn(m.inClosures(m.sig)))
		}
		receivers.add(g.typeNames...)
		receiver := receivers.pick("w", "wrapper")
		for _, m := range g.methods {
			in := []*source{m.file}
			if m.promoted() {
				in = []*source{g.file, m.file}
			}
			f := b.in(in...)
			model, taken := b.guardedMethod(g, m, receiver, f)
			b.merger(f, g, m, &model, w, taken)
			f.wrapper(g).Methods = append(f.wrapper(g).Methods, model)
			if !m.promoted() {
				f.Guards = append(f.Guards, f.guard(m.method))
			}
		}
	}
	for _, m := range b.functions {
		f := b.in(m.file)
		f.Functions = append(f.Functions, b.function(m, f))
		f.Guards = append(f.Guards, f.guard(m))
	}
	for _, f := range b.files {
		for _, g := range b.guarded {
			if w := f.wrappers[g]; w != nil {
				f.Wrappers = append(f.Wrappers, *w)
			}
		}
		f.Imports = f.importSpecs()
	}
}

func (f *fileModel) wrapper(g *guarded) *templates.Wrapper {
	if f.wrappers[g] == nil {
		w := g.wrapper
		f.wrappers[g] = &w
	}
	return f.wrappers[g]
}

// guardedMethod builds the model of one method of a guarded type. It also returns the names that
// are taken in it.
func (b *builder) guardedMethod(g *guarded, gm guardedMethod, receiver string, f *fileModel) (m templates.Method, taken *scope) {
	typeNames := g.typeNames
	if !gm.promoted() && gm.iface == nil {
		typeNames = gm.typeNames
	}
	taken = signatureNames(gm.sig)
	taken.add(receiver)
	taken.add(typeNames...)
	m = b.method(gm.method, gm.sig, taken, f)
	m.Receiver, m.TypeArgs = receiver, typeNames
	m.Origin = g.recv.Name() + "." + gm.fn.Name()
	m.Locker = receiver + "." + g.wrapper.Locker
	m.Callee = receiver + "." + g.wrapper.Alias + "." + gm.fn.Name()
	m.Fallback, m.FallbackName = fallbackOf(g, gm, receiver), gm.recv.Name()+"."+gm.directives[0].fallback
	for i := range m.Locks {
		l := &m.Locks[i]
		l.Key.Args, l.Key.TypeArgs = b.keyArgs(g, gm, gm.keys[i], receiver), f.keyTypeArgs(gm, l.Key)
		if gm.tick != nil {
			l.Tick.Args, l.Tick.TypeArgs = b.keyArgs(g, gm, gm.tick, receiver), f.keyTypeArgs(gm, l.Tick)
		}
		l.Promoted = gm.promoted() && gm.embedder == nil
	}
	return m, taken
}

// function builds the model of one function.
func (b *builder) function(fm *method, f *fileModel) templates.Method {
	sig := fm.fn.Signature()
	taken := signatureNames(sig)
	taken.add(fm.typeNames...)
	hidden := signatureNames(sig).has(fm.fn.Name())
	taken.add(fm.fn.Name(), fm.directives[0].fallback)
	m := b.method(fm, sig, taken, f)
	m.Name += "WithLock"
	m.Origin = fm.fn.Name()
	m.TypeArgs = fm.typeNames
	m.LockerParam = taken.pick("locker", "lockgenLocker")
	m.Locker = m.LockerParam
	m.Callee, m.Fallback = fm.fn.Name(), fm.directives[0].fallback
	m.FallbackName = m.Fallback
	for i, p := range slices.Collect(sig.TypeParams().TypeParams()) {
		m.TypeParams = append(m.TypeParams, templates.Field{Name: fm.typeNames[i], Type: f.text(p.Constraint())})
	}
	f.use(RuntimePath)
	if hidden {
		m.Callee = b.pkg.naming.pick(thing{kind: forwarder, of: fm.fn.Name()}, lowerFirst(fm.fn.Name())+"Inner")
		m.Forward = fm.fn.Name()
	}
	for i := range m.Locks {
		for _, v := range fm.keys[i].roots {
			m.Locks[i].Key.Args = append(m.Locks[i].Key.Args, v.Name())
		}
	}
	if fm.tick != nil {
		for _, v := range fm.tick.roots {
			m.Locks[0].Tick.Args = append(m.Locks[0].Tick.Args, v.Name())
		}
	}
	return m
}

// method builds what methods and functions have in common. The user's names stay, a variable
// without a name gets one, and generated locals differ from all of them.
func (b *builder) method(gm *method, sig *types.Signature, taken *scope, file *fileModel) templates.Method {
	taken.addAll(b.namedIn(gm.inClosures(sig)))
	for _, l := range gm.locks {
		taken.add(l.Key.Name, l.Policy.Var, l.Tick.Name)
	}
	taken.add(b.imports.name(RuntimePath), b.imports.name("errors"))
	doc := gm.docText(b.pkg.run.fset)
	m := templates.Method{
		Name: gm.fn.Name(), Doc: doc, Deprecated: deprecated(doc), Variadic: sig.Variadic(), Nil: "nil",
	}
	m.Params = file.fields(sig.Params(), taken, func(i int) string {
		if i == 0 {
			return "ctx"
		}
		return "arg"
	})
	if m.Variadic {
		last := &m.Params[len(m.Params)-1]
		t := sig.Params().At(sig.Params().Len() - 1).Type()
		last.Type = "..." + file.text(t.(*types.Slice).Elem())
	}
	m.Results = file.fields(sig.Results(), taken, func(i int) string {
		if i == sig.Results().Len()-1 {
			return "err"
		}
		return "result"
	})
	if taken.has("nil") {
		if file.Names.NoError == "" {
			file.Names.NoError = b.pkg.naming.pick(thing{kind: noErrorVar, of: file.path}, "noError")
		}
		m.Nil = file.Names.NoError
	}
	m.Held = taken.pick("held", "hold")
	for i, l := range gm.locks {
		name := "key"
		if l.Key.Each != nil {
			name = "keys"
		}
		l.Key.Var = taken.pick(name+ordinal(i), "lock"+upperFirst(name)+ordinal(i))
		if l.Tick.Name != "" {
			l.Tick.Var = taken.pick("tick", "lockTick")
		}
		m.Locks = append(m.Locks, l)
	}
	m.Skip = gm.directives[0].Skip
	if m.Skip || gm.directives[0].fallback != "" {
		file.use("errors", RuntimePath)
	}
	file.noteRequests(m.Locks)
	if len(m.Locks) > 1 { // AcquireAll needs lock.Request
		file.use(RuntimePath)
	}
	return m
}

// fields gives every parameter or result a name: its own, or a generated one.
func (f *fileModel) fields(list *types.Tuple, taken *scope, invent func(i int) string) []templates.Field {
	out := make([]templates.Field, list.Len())
	for i := range out {
		v := list.At(i)
		out[i] = templates.Field{Name: v.Name(), Type: f.text(v.Type())}
		if v.Name() == "" || v.Name() == "_" {
			out[i].Name = taken.pick(invent(i))
		}
	}
	return out
}

// keyTypeArgs returns the type arguments of a key function that can't infer them.
func (f *fileModel) keyTypeArgs(gm guardedMethod, k templates.KeyFunc) []string {
	if len(k.TypeArgs) == 0 || !gm.promoted() {
		return k.TypeArgs
	}
	args := gm.typeArgs()
	if len(args) != len(gm.typeNames) { // an alias of an interface literal: Go infers them, or reports that it can't
		return nil
	}
	var out []string
	for i, name := range gm.typeNames {
		if slices.Contains(k.TypeArgs, name) {
			out = append(out, f.text(args[i]))
		}
	}
	return out
}

// keyArgs returns the wrapper's arguments for the key function.
func (b *builder) keyArgs(g *guarded, gm guardedMethod, k *keyed, receiver string) []string {
	var out []string
	recv := gm.receiver()
	for _, v := range k.roots {
		if recv != nil && v == recv {
			out = append(out, receiverArg(g, gm, receiver, isPointer(recv.Type())))
		} else {
			out = append(out, v.Name())
		}
	}
	return out
}

// receiverArg returns the guarded method's receiver, reached from the wrapper.
func receiverArg(g *guarded, gm guardedMethod, receiver string, wantPointer bool) string {
	expr, isPtr := receiver+"."+g.wrapper.Alias, true
	for _, field := range gm.path {
		expr += "." + field.Name()
		isPtr = isPointer(field.Type())
	}
	switch {
	case wantPointer && !isPtr:
		return "&" + expr
	case !wantPointer && isPtr:
		return "*" + expr
	}
	return expr
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// docText returns the user's doc comment of a method. A comment on the line of a directive belongs
// to the directive.
func (t *target) docText(fset *token.FileSet) string {
	if t.doc == nil {
		return ""
	}
	said := &ast.CommentGroup{List: slices.DeleteFunc(slices.Clone(t.doc.List), func(c *ast.Comment) bool {
		return slices.ContainsFunc(t.directives, func(d *directive) bool { return fset.Position(d.pos).Line == fset.Position(c.Slash).Line })
	})}
	return said.Text()
}

// deprecated returns the paragraph by which Go marks a deprecated method, because then the wrapper
// is deprecated too.
func deprecated(doc string) string {
	for paragraph := range strings.SplitSeq(doc, "\n\n") {
		if strings.HasPrefix(paragraph, "Deprecated: ") {
			return strings.TrimSpace(paragraph)
		}
	}
	return ""
}

// shortPosition returns a position in the form for a message about another position.
func shortPosition(p token.Position) string {
	return filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
}
