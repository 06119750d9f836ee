package generator

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// builder makes the models of the files of one build.
type builder struct {
	unit      *unit
	pkg       *pkg
	imports   *importTable
	sources   map[string]*source // the files of the build, by path
	annotated map[*types.Func]*method
	guarded   []*guarded
	functions []*method
	foreign   []*method            // methods of other packages, promoted to types of this one
	known     map[string]knownName // package-level names in this build that callers know
	keyKinds  map[keyID]keyKind
	files     map[*output]*fileModel
}

// knownName describes the declarations of a name at package level.
type knownName struct {
	declared string // where the user declares it; empty if the user does not
	claimed  string // what lockgen declares with this name; empty if nothing
}

// fileModel is the growing model of one file, and the qualifier of the types in it.
type fileModel struct {
	templates.File
	path     string
	wrappers map[*guarded]*templates.Wrapper
	imports  *importTable
	used     map[string]bool // by path: the file mentions it
}

// text returns a type in the spelling of the file.
func (f *fileModel) text(t types.Type) string { return types.TypeString(t, f.qualify) }

// qualify is the types.Qualifier of the file.
func (f *fileModel) qualify(p *types.Package) string {
	if p == f.imports.self {
		return ""
	}
	f.used[p.Path()] = true
	return f.imports.name(p.Path())
}

// use records imports that the file mentions.
func (f *fileModel) use(paths ...string) {
	for _, path := range paths {
		f.used[path] = true
	}
}

// guarded is a type that gets a wrapper, and its annotated methods: first its own, in source order,
// and then those promoted to it, by name.
type guarded struct {
	recv      *types.TypeName
	file      *source // the file that declares it
	methods   []guardedMethod
	wrapper   templates.Wrapper
	typeNames []string // the names of its type parameters, with names for blank ones
}

type guardedMethod struct {
	*method
	sig  *types.Signature // as seen from the guarded type
	path []*types.Var     // the embedded fields that lead to a promoted method
	from *guarded         // the interface that it is promoted from, if any
}

func (gm guardedMethod) promoted() bool { return len(gm.path) > 0 || gm.from != nil }

// instance returns the instantiated type to which a promoted method belongs, or nil for other
// methods.
func (gm guardedMethod) instance() *types.Named {
	if !gm.promoted() {
		return nil
	}
	t := gm.sig.Recv().Type()
	if len(gm.path) > 0 {
		t = gm.path[len(gm.path)-1].Type()
	}
	t = pointee(t)
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// typeArgs returns the type arguments of the instance.
func (gm guardedMethod) typeArgs() []types.Type {
	if named := gm.instance(); named != nil {
		return slices.Collect(named.TypeArgs().Types())
	}
	return nil
}

// resolve resolves the keys and builds the models. If the package has a diagnostic, it only looks
// for more of them.
func (u *unit) resolve() map[*output]*fileModel {
	if len(u.methods) == 0 {
		return nil
	}
	b := &builder{
		unit: u, pkg: u.pkg, sources: map[string]*source{}, annotated: map[*types.Func]*method{},
		known: map[string]knownName{}, keyKinds: map[keyID]keyKind{}, files: map[*output]*fileModel{},
	}
	for _, f := range u.files {
		b.sources[f.path] = f
	}
	b.group()
	b.takeNames()
	b.nameImports()
	for _, exported := range []bool{true, false} { // exported names are chosen first
		for _, m := range slices.Concat(u.methods, b.foreign) {
			if m.exported() == exported {
				b.locks(m)
			}
		}
	}
	for _, m := range u.methods { // in source order
		for _, d := range m.directives {
			b.noteKind(m, d)
		}
	}
	for _, g := range b.guarded {
		b.nameWrapper(g)
	}
	b.checkTypeParams()
	for _, m := range b.functions {
		b.claim(m.id.Pos(), m.fn.Name()+"WithLock", "the wrapper of "+m.name())
		if slices.Contains(m.typeNames, m.fn.Name()) {
			b.pkg.report(m.id.Pos(), "rename one of them", "%s has a type parameter of its own name, which hides it", m.name())
		}
	}
	if len(u.pkg.diagnostics) > 0 {
		return nil
	}
	b.wrappers()
	return b.files
}

// in returns the model of the output file for code that needs all these files.
func (b *builder) in(files ...*source) *fileModel {
	o := b.pkg.outputOf(files...)
	f := b.files[o]
	if f == nil {
		f = &fileModel{path: o.path, wrappers: map[*guarded]*templates.Wrapper{}, imports: b.imports, used: map[string]bool{}}
		f.Package, f.Names, f.Constraint = b.pkg.name, b.imports.fileNames(), constraintText(o.when)
		b.files[o] = f
	}
	return f
}

// group collects the guarded types in the order of their first directive. If this build has no
// annotated method of a type, other builds may have some: the wrapper is declared in the builds
// that have the type.
func (b *builder) group() {
	byType := map[*types.TypeName]*guarded{}
	add := func(recv *types.TypeName) *guarded {
		if byType[recv] == nil {
			byType[recv] = &guarded{recv: recv, file: b.fileOf(recv)}
			b.guarded = append(b.guarded, byType[recv])
		}
		return byType[recv]
	}
	for _, m := range b.unit.methods {
		b.annotated[m.fn] = m
		if m.recv == nil {
			b.functions = append(b.functions, m)
			continue
		}
		g := add(m.recv)
		g.methods = append(g.methods, guardedMethod{method: m, sig: m.fn.Signature()})
	}
	for _, name := range sortedKeys(b.pkg.guardedBy) {
		if recv, ok := b.unit.types.Scope().Lookup(name).(*types.TypeName); ok {
			add(recv)
		}
	}
	for _, g := range b.guarded {
		b.checkEmbedded(g)
		g.methods = append(g.methods, b.promotedMethods(g)...)
	}
}

func (b *builder) fileOf(name *types.TypeName) *source {
	return b.sources[b.pkg.run.fset.File(name.Pos()).Name()]
}

// takeNames collects the identifiers that generated names must differ from.
func (b *builder) takeNames() {
	together := slices.DeleteFunc(slices.Clone(b.pkg.files), func(f *source) bool {
		return !f.inTest() && !b.unit.has[f]
	})
	for name, id := range declaredNames(together) {
		b.known[name] = knownName{declared: shortPosition(b.pkg.run.fset.Position(id.Pos()))}
	}
	b.takeDotImported()
	for _, g := range b.guarded {
		for _, m := range g.methods {
			b.pkg.naming.users.addAll(signatureNames(m.sig))
		}
	}
	for _, m := range b.unit.methods {
		m.nameTypeParams()
		b.pkg.naming.users.add(m.typeNames...)
	}
	for _, g := range b.guarded {
		g.nameTypeParams(b.pkg.naming.declared)
	}
}

// takeDotImported takes the names that an external test gets by a dot import of the package that it
// tests, including those that this run generates.
func (b *builder) takeDotImported() {
	tested := b.pkg.tested
	if tested == nil || tested.naming == nil || !slices.ContainsFunc(b.unit.files, func(f *source) bool {
		return slices.ContainsFunc(f.imports(), func(s *ast.ImportSpec) bool {
			return s.Name != nil && s.Name.Name == "." && importPath(s) == tested.path
		})
	}) {
		return
	}
	for name := range tested.naming.scope.own {
		if token.IsExported(name) && b.known[name].declared == "" {
			b.known[name] = knownName{claimed: "a name of package " + tested.name + ", which is imported with a dot,"}
		}
	}
}

// signatureNames returns the names of the parameters, results and type parameters of a method.
func signatureNames(sig *types.Signature) *scope {
	out := variableNames(sig)
	for p := range sig.RecvTypeParams().TypeParams() {
		out.add(p.Obj().Name())
	}
	for p := range sig.TypeParams().TypeParams() {
		out.add(p.Obj().Name())
	}
	return out
}

func variableNames(sig *types.Signature) *scope {
	out := within()
	for v := range sig.Params().Variables() {
		out.add(v.Name())
	}
	for v := range sig.Results().Variables() {
		out.add(v.Name())
	}
	return out
}

// nameImports names every package that the output can mention.
func (b *builder) nameImports() {
	b.imports = newImportTable(b.unit.types, b.pkg.usersNames())
	taken := predeclared()
	taken.addAll(b.pkg.naming.declared)
	for _, m := range b.unit.methods {
		taken.add(m.typeNames...)
	}
	params := func(list *types.TypeParamList) {
		for p := range list.TypeParams() {
			taken.add(p.Obj().Name())
			types.TypeString(p.Constraint(), b.imports.collect)
		}
	}
	for _, g := range b.guarded {
		taken.add(g.typeNames...)
		params(typeParamsOf(g.recv))
		for _, m := range g.methods {
			params(m.sig.RecvTypeParams())
			types.TypeString(m.sig.Params(), b.imports.collect)
			types.TypeString(m.sig.Results(), b.imports.collect)
			for _, t := range m.inClosures(m.sig) {
				types.TypeString(t, b.imports.collect)
			}
			for _, t := range m.typeArgs() { // its key function may need them
				types.TypeString(t, b.imports.collectBody)
			}
			if m.embedder != nil {
				types.TypeString(m.fn.Signature().Recv().Type(), b.imports.collect)
			}
		}
	}
	for _, m := range b.functions {
		params(m.fn.Signature().TypeParams())
		types.TypeString(m.fn.Signature().Params(), b.imports.collect)
		types.TypeString(m.fn.Signature().Results(), b.imports.collect)
	}
	b.imports.assign(taken, b.pkg.naming.users)
}

// variable returns the type of a receiver or parameter. A blank type parameter of the receiver has
// been given a name.
func (f *fileModel) variable(m *method, v *types.Var) string {
	if v != m.receiver() || len(m.typeNames) == 0 {
		return f.text(v.Type())
	}
	text := m.recv.Name() + "[" + strings.Join(m.typeNames, ", ") + "]"
	if isPointer(v.Type()) {
		return "*" + text
	}
	return text
}

func (t *importTable) fileNames() templates.Names {
	return templates.Names{
		Lock:    t.name(RuntimePath),
		Reflect: t.name("reflect"),
		Slices:  t.name("slices"),
		Strconv: t.name("strconv"),
		Time:    t.name("time"),
		Errors:  t.name("errors"),
	}
}
