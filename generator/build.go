package generator

import (
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// builder makes the model of one package's file.
type builder struct {
	*pkg
	imports   *importTable
	annotated map[*types.Func]*method
	guarded   []*guarded
	scope     names             // package-level names that are taken, ours included
	declared  names             // the user's among them
	claimed   map[string]string // exported names of ours, and what for
	users     names             // every identifier of the user's that our code repeats
}

// guarded is a type that gets a wrapper, and its methods: its own that are
// annotated, in source order, and then those promoted to it, by name.
type guarded struct {
	recv      *types.Named
	methods   []guardedMethod
	wrapper   templates.Wrapper
	typeNames []string // of its type parameters, blank ones named
}

type guardedMethod struct {
	*method
	sig  *types.Signature // as the guarded type sees it
	path []*types.Var     // the embedded fields that a promoted method is reached through
}

func (gm guardedMethod) promoted() bool { return len(gm.path) > 0 }

// resolve resolves the keys and builds the model. With a diagnostic in the
// package it only looks for more of them.
func (p *pkg) resolve() {
	if len(p.methods) == 0 {
		return
	}
	b := &builder{pkg: p, annotated: map[*types.Func]*method{}, claimed: map[string]string{}}
	b.group()
	b.takeNames()
	b.nameImports()
	for _, exported := range []bool{true, false} { // the unexported give way
		for _, m := range p.methods {
			if m.exported() == exported {
				b.locks(m)
			}
		}
	}
	for _, g := range b.guarded {
		b.nameWrapper(g)
	}
	if len(p.diagnostics) > 0 {
		return
	}
	file := &templates.File{Package: p.name, Names: b.fileNames()}
	for _, g := range b.guarded {
		file.Wrappers = append(file.Wrappers, b.wrapper(g, &file.Names))
	}
	file.Imports = b.importSpecs()
	p.model = file
}

// group collects the guarded types in the order of their first directive.
func (b *builder) group() {
	byType := map[*types.TypeName]*guarded{}
	for _, m := range b.methods {
		b.annotated[m.fn] = m
		g := byType[m.recv]
		if g == nil {
			g = &guarded{recv: m.recv.Type().(*types.Named)}
			byType[m.recv] = g
			b.guarded = append(b.guarded, g)
		}
		g.methods = append(g.methods, guardedMethod{method: m, sig: m.fn.Signature()})
	}
	for _, g := range b.guarded {
		g.methods = append(g.methods, b.promotedMethods(g.recv)...)
	}
}

// promotedMethods are the annotated methods of embedded types: through the
// wrapper's embedded type they would be reached without their lock.
func (b *builder) promotedMethods(recv *types.Named) []guardedMethod {
	var out []guardedMethod
	set := types.NewMethodSet(types.NewPointer(recv))
	for sel := range set.Methods() {
		fn, ok := sel.Obj().(*types.Func)
		if !ok || len(sel.Index()) < 2 || b.annotated[fn.Origin()] == nil {
			continue
		}
		gm := guardedMethod{method: b.annotated[fn.Origin()], sig: sel.Type().(*types.Signature)}
		var t types.Type = recv
		for _, i := range sel.Index()[:len(sel.Index())-1] {
			field := structOf(t).Field(i)
			gm.path = append(gm.path, field)
			t = field.Type()
		}
		out = append(out, gm)
	}
	return out
}

// takeNames collects the identifiers that ours must not meet.
func (b *builder) takeNames() {
	b.declared, b.users, b.scope = names{}, names{}, predeclared()
	for name := range b.declaredNames() {
		b.declared.add(name)
	}
	b.scope.addAll(b.declared)
	b.scope.addAll(b.importedNames())
	for _, g := range b.guarded {
		for p := range g.recv.TypeParams().TypeParams() {
			b.users.add(p.Obj().Name())
		}
		for _, m := range g.methods {
			b.users.addAll(signatureNames(m.sig))
			b.users.add(m.fn.Signature().Recv().Name())
		}
	}
	for _, m := range b.methods {
		m.nameTypeParams()
		b.users.add(m.typeNames...)
	}
}

// pick names something package-level that callers do not know: no identifier
// of the user's that our code repeats may hide it.
func (b *builder) pick(name string) string {
	taken := b.scope.clone()
	taken.addAll(b.users)
	name = taken.pick(name)
	b.scope.add(name)
	return name
}

// signatureNames are the parameters, results and type parameters of a method.
func signatureNames(sig *types.Signature) names {
	out := names{}
	for v := range sig.Params().Variables() {
		out.add(v.Name())
	}
	for v := range sig.Results().Variables() {
		out.add(v.Name())
	}
	for p := range sig.RecvTypeParams().TypeParams() {
		out.add(p.Obj().Name())
	}
	return out
}

// nameImports names every package that the output can mention.
func (b *builder) nameImports() {
	taken := predeclared()
	taken.addAll(b.declared)
	b.imports = &importTable{
		self: b.types, taken: taken, hide: b.users, users: b.usersNames(), names: map[string]string{},
		used: map[string]bool{RuntimePath: true},
		own:  map[string]string{RuntimePath: "lock", "strconv": "strconv", "time": "time"},
	}
	for _, g := range b.guarded {
		for p := range g.recv.TypeParams().TypeParams() {
			taken.add(p.Obj().Name())
			types.TypeString(p.Constraint(), b.imports.collect)
		}
		for _, m := range g.methods {
			for p := range m.sig.RecvTypeParams().TypeParams() {
				taken.add(p.Obj().Name())
			}
			types.TypeString(m.sig.Params(), b.imports.collect)
			types.TypeString(m.sig.Results(), b.imports.collect)
		}
	}
	b.imports.assign()
}

// nameTypeParams names the type parameters of the receiver, blank ones as the
// type's declaration does.
func (m *method) nameTypeParams() {
	taken := signatureNames(m.fn.Signature())
	declared := m.recv.Type().(*types.Named).TypeParams()
	for p := range m.fn.Signature().RecvTypeParams().TypeParams() {
		name := p.Obj().Name()
		if name == "_" {
			name = taken.pick(declared.At(p.Index()).Obj().Name(), "T")
		}
		m.typeNames = append(m.typeNames, name)
	}
}

// variableText is the type of a receiver or parameter; a blank type parameter
// of the receiver has got a name.
func (b *builder) variableText(m *method, v *types.Var) string {
	if v != m.fn.Signature().Recv() || len(m.typeNames) == 0 {
		return b.typeText(v.Type())
	}
	text := m.recv.Name() + "[" + strings.Join(m.typeNames, ", ") + "]"
	if isPointer(v.Type()) {
		return "*" + text
	}
	return text
}

func (b *builder) fileNames() templates.Names {
	return templates.Names{
		Lock:    b.imports.names[RuntimePath],
		Strconv: b.imports.names["strconv"],
		Time:    b.imports.names["time"],
	}
}

func (b *builder) typeText(t types.Type) string { return types.TypeString(t, b.imports.qualify) }

// locks resolves the directives of a method and names what each of them yields.
func (b *builder) locks(m *method) {
	patterns := map[string]bool{}
	for i, d := range m.directives {
		if key := d.items["key"]; key != nil && key.value != "" && patterns[key.value] {
			b.report(d.posOf(key.valueAt), "one lock of a key is enough", "the key is given twice on %s", m.name())
		} else if key != nil {
			patterns[key.value] = true
		}
		taken := b.scope.clone()
		taken.add(b.imports.names[RuntimePath], b.imports.names["strconv"])
		taken.add(m.typeNames...)
		for _, v := range m.variables() {
			taken.add(v.Name())
		}
		params := m.keyParams(taken)
		k := m.resolve(d, params, taken)
		l := templates.Lock{Key: templates.KeyFunc{Steps: k.steps, Parts: k.parts}}
		if k.fails {
			l.Key.Err = taken.pick("err", "keyErr")
		}
		l.Key.Name = b.claimKey(m, i)
		for _, v := range k.roots {
			l.Key.Params = append(l.Key.Params, templates.Field{Name: params[v.Name()], Type: b.variableText(m, v)})
		}
		l.Policy = templates.Policy{
			Var:     b.pick(lowerFirst(m.recv.Name()) + upperFirst(m.fn.Name()) + "Lock" + ordinal(i)),
			Method:  m.name(),
			Pattern: d.key.text,
			TTL:     d.ttl, Wait: d.wait, Max: d.max,
			Try: d.try, Reentrant: d.reentrant, NoRenew: d.noRenew,
		}
		b.noteUse(l)
		m.locks = append(m.locks, l)
		m.keys = append(m.keys, k)
		b.keyTypeParams(m, i)
	}
}

// noteUse notes the imports that the key function and the policy are made with.
func (b *builder) noteUse(l templates.Lock) {
	for _, p := range l.Key.Parts {
		if p.Kind != templates.Literal && p.Kind != templates.Encoded {
			b.imports.used["strconv"] = true
		}
	}
	if l.Policy.TTL.Unit+l.Policy.Wait.Unit+l.Policy.Max.Unit > 0 {
		b.imports.used["time"] = true
	}
}

// keyTypeParams gives the key function those type parameters that its
// parameters are written with. One that is needed only by the constraint of
// another may not be inferred, so then all are passed.
func (b *builder) keyTypeParams(m *method, i int) {
	params := slices.Collect(m.fn.Signature().RecvTypeParams().TypeParams())
	need := map[*types.TypeParam]bool{}
	mark := func(t types.Type) bool {
		found := false
		for _, p := range params {
			if !need[p] && written(t, func(t types.Type) bool { return t == p }) {
				need[p], found = true, true
			}
		}
		return found
	}
	for _, v := range m.keys[i].roots {
		mark(v.Type())
	}
	explicit := false
	for again := true; again; {
		again = false
		for _, p := range params {
			if need[p] && mark(p.Constraint()) {
				again, explicit = true, true
			}
		}
	}
	l := &m.locks[i]
	for at, p := range params {
		if !need[p] {
			continue
		}
		l.Key.TypeParams = append(l.Key.TypeParams, templates.Field{Name: m.typeNames[at], Type: b.typeText(p.Constraint())})
		if explicit {
			l.TypeArgs = append(l.TypeArgs, m.typeNames[at])
		}
	}
}

// claimKey names the key function of a method's i-th directive. It is exported,
// whatever its method is: operators and tests name keys by it.
func (b *builder) claimKey(m *method, i int) string {
	suffix := upperFirst(m.fn.Name()) + "Key" + ordinal(i)
	exported := upperFirst(m.recv.Name()) + suffix
	if !m.exported() && b.scope[exported] {
		return b.pick(lowerFirst(m.recv.Name()) + suffix)
	}
	b.claim(m, exported, "the key function of "+m.name())
	if signatureNames(m.fn.Signature())[exported] {
		b.report(m.decl.Name.Pos(), "rename that parameter", "a parameter of %s hides its key function %s", m.name(), exported)
	}
	return exported
}

// claim takes a name that callers know, so that it can't move.
func (b *builder) claim(m *method, name, what string) {
	pos := m.decl.Name.Pos()
	switch {
	case b.declared[name]:
		at := b.run.fset.Position(b.declaredNames()[name].Pos())
		b.report(pos, "rename that one", "%s, %s, is declared at %s already", name, what, shortPosition(at))
	case b.claimed[name] != "":
		b.report(pos, "rename a type or method", "%s would be %s and %s", name, b.claimed[name], what)
	}
	b.claimed[name] = what
	b.scope.add(name)
}

// importSpecs lists what the file mentions, by path.
func (b *builder) importSpecs() []templates.Import {
	var out []templates.Import
	for _, path := range sortedKeys(b.imports.used) {
		spec := templates.Import{Name: b.imports.names[path], Path: path}
		if spec.Name == b.imports.own[path] && strings.HasSuffix("/"+path, "/"+spec.Name) {
			spec.Name = ""
		}
		out = append(out, spec)
	}
	return out
}
