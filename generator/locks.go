package generator

import (
	"cmp"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/templates"
)

// locks resolves the directives of a method, and names the declarations that each of them needs.
func (b *builder) locks(m *method) {
	keys := map[keyID]bool{}
	f := b.in(m.homes()...)
	b.checkClosure(m, m.fn.Signature())
	for i, d := range m.directives {
		id := keyID{d.Backend, d.key.text}
		if d.key.text != "" && keys[id] {
			b.pkg.report(d.posOf(d.items["key"].valueAt), "one lock of a key is enough", "the key is given twice on %s", m.name())
		}
		keys[id] = true
		b.checkFallback(m, d)
		b.checkLeader(m, d)
		b.checkSkip(m, d)
		taken, params := b.keyScope(m)
		k := m.resolveKey(d, params, taken)
		b.pkg.reportIn(d, k.problems)
		b.pkg.warnIn(d, k.warnings)
		said := b.pkg.lock(m.target, d)
		l := templates.Lock{Directive: said.Text(), Key: b.keyFunc(f, m, k, params, taken)}
		l.Key.Pattern, l.Key.Name = d.key.text, b.claimKey(m, i)
		l.Policy, l.Policy.Method, l.Policy.Pattern = d.Policy, m.name(), d.key.text
		l.Policy.Var = b.pkg.naming.pick(thing{policyVar, m.name(), i}, m.joined(lowerFirst)+"Lock"+ordinal(i))
		if d.Once {
			taken, params := b.keyScope(m)
			m.tick = m.resolveTick(d, params, taken)
			b.pkg.reportIn(d, m.tick.problems)
			l.Tick = b.keyFunc(f, m, m.tick, params, taken)
			l.Tick.Pattern, l.Tick.Tick = d.tick.text, true
			l.Tick.Name = b.pkg.naming.pick(thing{kind: tickFunction, of: m.name()}, m.joined(lowerFirst)+"Tick")
		}
		f.noteUse(l)
		m.locks = append(m.locks, l)
		m.keys = append(m.keys, k)
		b.checkMerge(m, d)
	}
}

// keyScope returns the names that the locals of a key function must differ from, and the function's
// names for the method's variables.
func (b *builder) keyScope(m *method) (taken *scope, params map[string]string) {
	taken = within(b.pkg.naming.scope)
	taken.add(b.imports.name(RuntimePath), b.imports.name("strconv"), b.imports.name("reflect"))
	taken.add(m.typeNames...)
	for _, v := range m.variables() {
		taken.add(v.Name())
	}
	return taken, m.keyParams(taken)
}

// keyFunc returns the function that makes k, without its name.
func (b *builder) keyFunc(f *fileModel, m *method, k *keyed, params map[string]string, taken *scope) templates.KeyFunc {
	out := templates.KeyFunc{Steps: k.steps, Each: k.each, Parts: k.parts}
	if k.fails {
		out.Err = taken.pick("err", "keyErr")
	}
	for _, v := range k.roots {
		out.Params = append(out.Params, templates.Field{Name: params[v.Name()], Type: f.variable(m, v)})
	}
	b.keyTypeParams(f, m, k, &out)
	return out
}

// keyID identifies a key of one engine.
type keyID struct{ backend, pattern string }

// keyKind is the kind of lock that the first directive of a key asks for, and the length of its
// lease.
type keyKind struct {
	kind, where string
	ttl         time.Duration
}

// noteKind reports a directive that asks for another kind of lock on a key than an earlier one. At
// run time either would be refused while the other is held.
func (b *builder) noteKind(m *method, d *directive) {
	kind := kindInWords(d.kind(), d.Permits)
	id, ttl := keyID{d.Backend, d.key.text}, cmp.Or(d.TTL.Length(), DefaultTTL)
	first, seen := b.keyKinds[id]
	switch {
	case d.key.text == "":
	case !seen:
		b.keyKinds[id] = keyKind{kind, m.name(), ttl}
	case first.kind != kind:
		b.pkg.report(d.posOf(d.items["key"].valueAt), "give all locks of a key the same kind", "a %s here, and a %s on %s, which has the same key",
			kind, first.kind, first.where)
	case first.ttl != ttl && len(b.pkg.diagnostics) == 0:
		b.pkg.warn(d.posOf(d.items["key"].valueAt), "give all leases of a key the same ttl, unless that is meant", "a ttl of %v here, and of %v on %s, which has the same key",
			ttl, first.ttl, first.where)
	}
}

// noteUse records the imports that the key function and the policy need.
func (f *fileModel) noteUse(l templates.Lock) {
	for _, p := range slices.Concat(l.Key.Parts, l.Tick.Parts) {
		if p.Kind != templates.Literal && p.Kind != templates.Encoded {
			f.use("strconv")
		}
	}
	steps := slices.Concat(l.Key.Steps, l.Tick.Steps)
	if l.Key.Each != nil {
		steps = append(steps, l.Key.Each.Steps...)
	}
	for _, s := range steps {
		if s.Mixed != nil {
			f.use("reflect")
			if slices.ContainsFunc(s.Mixed.Kinds, func(k templates.PartKind) bool { return k != templates.Encoded }) {
				f.use("strconv")
			}
		}
	}
	if l.Policy.TTL.Unit+l.Policy.Wait.Unit+l.Policy.Max.Unit+l.Policy.Delay.Unit+l.Policy.AtLeast.Unit+l.Policy.Sticky.Unit > 0 {
		f.use("time")
	}
	f.use(RuntimePath)
}

// keyTypeParams gives the key function the type parameters that its parameters use. A type
// parameter that only the constraint of another one needs may not be inferred; in that case all are
// passed.
func (b *builder) keyTypeParams(f *fileModel, m *method, k *keyed, out *templates.KeyFunc) {
	params := slices.Collect(m.typeParams().TypeParams())
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
	for _, v := range k.roots {
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
	for at, p := range params {
		if !need[p] {
			continue
		}
		out.TypeParams = append(out.TypeParams, templates.Field{Name: m.typeNames[at], Type: f.text(p.Constraint())})
		if explicit {
			out.TypeArgs = append(out.TypeArgs, m.typeNames[at])
		}
	}
	b.checkKeyTypeParams(m, *out)
}

// joined returns the method's name and its type's as one identifier.
func (m *method) joined(first func(string) string) string {
	if m.recv == nil {
		return first(m.fn.Name())
	}
	return first(m.recv.Name()) + upperFirst(m.fn.Name())
}

// claimKey names the key function of a method's i-th directive. The function is exported even if
// its method is not, because operators and tests name keys by it.
func (b *builder) claimKey(m *method, i int) string {
	exported := m.joined(upperFirst) + "Key" + ordinal(i)
	t := thing{keyFunction, m.name(), i}
	if !m.exported() && b.pkg.naming.scope.has(exported) && b.pkg.naming.chosen[t] != exported {
		return b.pkg.naming.pick(t, m.joined(lowerFirst)+"Key"+ordinal(i))
	}
	b.pkg.naming.chosen[t] = exported
	b.claim(m.id.Pos(), exported, "the key function of "+m.name())
	if signatureNames(m.fn.Signature()).has(exported) {
		b.pkg.report(m.id.Pos(), "rename that parameter", "a parameter of %s hides its key function %s", m.name(), exported)
	}
	return exported
}

// claim takes a name that callers know, and that therefore can't change.
func (b *builder) claim(pos token.Pos, name, what string) {
	switch known := b.known[name]; {
	case known.declared != "":
		b.pkg.report(pos, "rename that one", "%s, %s, is declared at %s already", name, what, known.declared)
	case known.claimed != "":
		b.pkg.report(pos, "rename a type or method", "%s would be %s and %s", name, known.claimed, what)
	}
	b.known[name] = knownName{b.known[name].declared, what}
	b.pkg.naming.scope.add(name)
}

// importSpecs lists the imports of the file, by path.
func (f *fileModel) importSpecs() []templates.Import {
	var out []templates.Import
	for _, path := range sortedKeys(f.used) {
		spec := templates.Import{Name: f.imports.name(path), Path: path}
		if p := f.imports.packages[path]; p != nil && spec.Name == p.own && strings.HasSuffix("/"+path, "/"+spec.Name) {
			spec.Name = ""
		}
		out = append(out, spec)
	}
	return out
}
