package generator

import (
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// nameWrapper names what callers of a guarded type see, and what it is
// embedded as.
func (b *builder) nameWrapper(g *guarded) {
	target := g.recv.Obj().Name()
	w := &g.wrapper
	w.Target = target
	w.Name = target + "WithLock"
	w.Constructor = "New" + w.Name
	if !g.recv.Obj().Exported() {
		w.Constructor = "new" + upperFirst(w.Name)
	}
	b.claim(g.methods[0].method, w.Name, "the wrapper of "+target)
	b.claim(g.methods[0].method, w.Constructor, "the constructor of "+w.Name)

	// A field of ours would hide a field or method of that name of the user's.
	taken := b.scope.clone()
	taken.addAll(b.users)
	taken.addAll(b.members(g.recv))
	w.Alias = taken.pick(lowerFirst(target) + "Inner")
	b.scope.add(w.Alias)
	w.Locker = taken.pick("locker", "lockgenLocker")
}

// members are the names of the fields and methods of a type, promoted ones
// included as far as this package declares them: those of other packages are
// exported and never meet ours.
func (b *builder) members(t types.Type) names {
	out := names{}
	seen := map[types.Type]bool{}
	var visit func(t types.Type)
	visit = func(t types.Type) {
		if ptr, ok := t.Underlying().(*types.Pointer); ok {
			t = ptr.Elem()
		}
		if seen[t] {
			return
		}
		seen[t] = true
		if named, ok := types.Unalias(t).(*types.Named); ok {
			for m := range named.Methods() {
				out.add(m.Name())
			}
		}
		if s := structOf(t); s != nil {
			for f := range s.Fields() {
				out.add(f.Name())
				if f.Embedded() {
					visit(f.Type())
				}
			}
		}
	}
	visit(t)
	return out
}

// wrapper builds the model of one guarded type.
func (b *builder) wrapper(g *guarded, file *templates.Names) templates.Wrapper {
	w := g.wrapper
	params := names{}
	for p := range g.recv.TypeParams().TypeParams() {
		params.add(p.Obj().Name())
	}
	for p := range g.recv.TypeParams().TypeParams() {
		name := p.Obj().Name()
		if name == "_" {
			name = params.pick("T")
		}
		g.typeNames = append(g.typeNames, name)
		w.TypeParams = append(w.TypeParams, templates.Field{Name: name, Type: b.typeText(p.Constraint())})
	}
	w.Inner = params.pick("inner")
	w.LockerParam = params.pick("locker")

	receivers := names{}
	for _, m := range g.methods {
		receivers.addAll(signatureNames(m.sig))
	}
	for _, name := range g.typeNames {
		receivers.add(name)
	}
	receiver := receivers.pick("w", "wrapper")
	for _, m := range g.methods {
		w.Methods = append(w.Methods, b.method(g, m, receiver, file))
	}
	return w
}

// method builds the model of one guarded method. The user's names stay; what
// has no name gets one, and locals of ours meet none of them.
func (b *builder) method(g *guarded, gm guardedMethod, receiver string, file *templates.Names) templates.Method {
	sig := gm.sig
	taken := signatureNames(sig)
	taken.add(receiver)
	for _, l := range gm.locks {
		taken.add(l.Key.Name, l.Policy.Var)
	}
	taken.add(b.imports.names[RuntimePath])

	m := templates.Method{
		Name: gm.fn.Name(), Receiver: receiver, Origin: g.recv.Obj().Name() + "." + gm.fn.Name(),
		Deprecated: deprecated(gm.decl.Doc.Text()), Variadic: sig.Variadic(), Nil: "nil",
	}
	m.TypeArgs = g.typeNames
	if !gm.promoted() {
		m.TypeArgs = gm.typeNames
	}
	taken.add(m.TypeArgs...)
	m.Params = b.fields(sig.Params(), taken, func(i int) string {
		if i == 0 {
			return "ctx"
		}
		return "arg"
	})
	if m.Variadic {
		last := &m.Params[len(m.Params)-1]
		t := sig.Params().At(sig.Params().Len() - 1).Type()
		last.Type = "..." + b.typeText(t.(*types.Slice).Elem())
	}
	m.Results = b.fields(sig.Results(), taken, func(i int) string {
		if i == sig.Results().Len()-1 {
			return "err"
		}
		return "result"
	})
	if signatureNames(sig)["nil"] {
		if file.NoError == "" {
			file.NoError = b.pick("noError")
		}
		m.Nil = file.NoError
	}
	m.Held = taken.pick("held", "hold")
	for i, l := range gm.locks {
		l.KeyVar = taken.pick("key"+ordinal(i), "lockKey"+ordinal(i))
		l.KeyArgs = b.keyArgs(g, gm, gm.keys[i], receiver)
		l.Promoted = gm.promoted()
		l.TypeArgs = b.keyTypeArgs(gm, l)
		m.Locks = append(m.Locks, l)
	}
	return m
}

// fields gives every parameter or result a name: its own, or one of ours.
func (b *builder) fields(list *types.Tuple, taken names, invent func(i int) string) []templates.Field {
	out := make([]templates.Field, list.Len())
	for i := range out {
		v := list.At(i)
		out[i] = templates.Field{Name: v.Name(), Type: b.typeText(v.Type())}
		if v.Name() == "" || v.Name() == "_" {
			out[i].Name = taken.pick(invent(i))
		}
	}
	return out
}

// keyTypeArgs are the type arguments of a key function that can't infer them.
func (b *builder) keyTypeArgs(gm guardedMethod, l templates.Lock) []string {
	if len(l.TypeArgs) == 0 || !gm.promoted() {
		return l.TypeArgs
	}
	t := gm.path[len(gm.path)-1].Type()
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	instance := types.Unalias(t).(*types.Named) // it has the method
	var out []string
	for i, name := range gm.typeNames {
		if slices.Contains(l.TypeArgs, name) {
			out = append(out, b.typeText(instance.TypeArgs().At(i)))
		}
	}
	return out
}

// keyArgs are what the wrapper passes to the key function.
func (b *builder) keyArgs(g *guarded, gm guardedMethod, k *keyed, receiver string) []string {
	var out []string
	recv := gm.fn.Signature().Recv()
	for _, v := range k.roots {
		if v == recv {
			out = append(out, receiverArg(g, gm, receiver, isPointer(recv.Type())))
		} else {
			out = append(out, v.Name())
		}
	}
	return out
}

// receiverArg is the guarded method's receiver, reached from the wrapper.
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

// deprecated is the paragraph by which Go marks what is not to be used: the
// wrapper is as deprecated as its method.
func deprecated(doc string) string {
	for paragraph := range strings.SplitSeq(doc, "\n\n") {
		if strings.HasPrefix(paragraph, "Deprecated: ") {
			return strings.TrimSpace(paragraph)
		}
	}
	return ""
}

// shortPosition is a position as another one's message mentions it.
func shortPosition(p token.Position) string {
	return filepath.Base(p.Filename) + ":" + strconv.Itoa(p.Line)
}
