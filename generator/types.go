package generator

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// importer hands go/types the imports that were loaded. What was not loaded is
// an error, which go/types turns into a package without contents.
type importer struct {
	packages map[string]*types.Package
	failed   map[string]string // path: what the go command said
}

func newImporter() *importer {
	return &importer{packages: map[string]*types.Package{}, failed: map[string]string{}}
}

func (im *importer) add(p *packages.Package) {
	if p.Types != nil && p.Types.Complete() && p.Types.Scope().Len() > 0 {
		im.packages[p.PkgPath] = p.Types
		return
	}
	for _, e := range p.Errors {
		im.failed[p.PkgPath] = e.Msg
	}
}

var errNotLoaded = errors.New("not loaded")

// Import implements types.Importer.
func (im *importer) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := im.packages[path]; p != nil {
		return p, nil
	}
	if said := im.failed[path]; said != "" {
		return nil, errors.New(said)
	}
	return nil, errNotLoaded
}

// stubFile is the name under which declarations stand in for the types that
// are about to be generated.
const stubFile = "lockgen stub"

// check finds the types of the annotated methods. Bodies are not looked at, and
// errors elsewhere do not matter: the package's own code may call the wrapper
// that is missing yet, and its signatures may mention it.
func (p *pkg) check(im *importer) {
	if len(p.methods) == 0 {
		return
	}
	files := p.syntax()
	if stub := p.stub(); stub != nil {
		files = append(files, stub)
	}
	p.info = &types.Info{Defs: map[*ast.Ident]types.Object{}}
	p.types = p.typeCheck(im, files, p.info, func(e types.Error) { p.typeErrors = append(p.typeErrors, e) })
	var known []*method
	for _, m := range p.methods {
		if m.check() {
			known = append(known, m)
		}
	}
	p.methods = known
}

func (p *pkg) syntax() []*ast.File {
	var files []*ast.File
	for _, f := range p.files {
		if f.syntax != nil {
			files = append(files, f.syntax)
		}
	}
	return files
}

func (p *pkg) typeCheck(im *importer, files []*ast.File, info *types.Info, report func(types.Error)) *types.Package {
	conf := types.Config{
		Importer:    im,
		FakeImportC: true,
		Error: func(err error) {
			var e types.Error
			if errors.As(err, &e) {
				report(e)
			}
		},
	}
	checked, _ := conf.Check(p.path, p.run.fset, files, info) // the errors went to report
	return checked
}

// stub declares the wrapper types of the annotated types, for code whose
// declarations mention them. That of a generic type is empty and has no
// constraints: it only has to be there.
func (p *pkg) stub() *ast.File {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", p.name)
	declared := p.declaredNames()
	done := map[string]bool{}
	for _, m := range p.methods {
		name := baseName(m.decl.Recv)
		spec := p.typeSpec(name)
		if spec == nil || done[name] || declared[name+"WithLock"] != nil {
			continue
		}
		done[name] = true
		if spec.TypeParams == nil {
			fmt.Fprintf(&b, "type %sWithLock struct { *%s }\n", name, name)
			continue
		}
		fmt.Fprintf(&b, "type %sWithLock[%s any] struct {}\n", name, strings.Join(fieldNames(spec.TypeParams), ", "))
	}
	file, _ := parser.ParseFile(p.run.fset, stubFile, b.String(), parser.SkipObjectResolution)
	return file
}

func fieldNames(list *ast.FieldList) []string {
	var out []string
	for _, f := range list.List {
		for _, id := range f.Names {
			out = append(out, id.Name)
		}
	}
	return out
}

func (p *pkg) typeSpec(name string) *ast.TypeSpec {
	for _, f := range p.syntax() {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, s := range g.Specs {
					if spec := s.(*ast.TypeSpec); spec.Name.Name == name {
						return spec
					}
				}
			}
		}
	}
	return nil
}

// check takes the method's types over from go/types and reports what can't be
// locked. It returns whether there is a method to go on with.
func (m *method) check() bool {
	p, name := m.pkg, m.decl.Name
	if m.file.broken {
		return false // the parser may have lost some of it
	}
	fn, _ := p.info.Defs[name].(*types.Func)
	if name.Name == "_" {
		p.report(name.Pos(), "", "a method called _ can't be called, so it can't be locked")
		return false
	}
	if fn == nil {
		m.reportTypeErrors(m.decl, name.Name+" can't be made out")
		return false
	}
	m.fn = fn
	sig := fn.Signature()
	if !m.findReceiver(sig) || !m.checkInvalid(sig) {
		return false
	}
	for _, other := range p.methods {
		if other != m && other.fn != nil && other.recv == m.recv && other.fn.Name() == fn.Name() {
			p.report(name.Pos(), "", "%s is declared twice", m.name())
			return false
		}
	}
	if sig.Params().Len() == 0 || !isContext(sig.Params().At(0).Type()) {
		p.report(name.Pos(), "write "+name.Name+"(ctx context.Context, …): the lock's lease ends through it",
			"%s has no context.Context as its first parameter", m.name())
	}
	if n := sig.Results().Len(); n == 0 || !isError(sig.Results().At(n-1).Type()) {
		p.report(name.Pos(), "add it: it says that the lock was not acquired, or was lost",
			"%s has no error as its last result", m.name())
	}
	return true
}

func (m *method) findReceiver(sig *types.Signature) bool {
	t := types.Unalias(sig.Recv().Type())
	if ptr, ok := t.(*types.Pointer); ok {
		t = types.Unalias(ptr.Elem())
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() != m.pkg.types {
		m.reportTypeErrors(m.decl.Recv, "the receiver's type can't be made out")
		return false
	}
	m.recv = named.Origin().Obj()
	return true
}

// checkInvalid reports type errors that touch the signature.
func (m *method) checkInvalid(sig *types.Signature) bool {
	if !invalid(sig.Params()) && !invalid(sig.Results()) {
		return true
	}
	m.reportTypeErrors(m.decl.Type, "the signature of "+m.decl.Name.Name+" has a type that can't be made out")
	return false
}

// reportTypeErrors reports what go/types said about a node, or about an import
// that it names, or otherwise.
func (m *method) reportTypeErrors(node ast.Node, otherwise string) {
	said := false
	spans := append(m.file.importsNamedIn(node), node)
	for _, e := range m.pkg.typeErrors {
		for _, n := range spans {
			if n.Pos() <= e.Pos && e.Pos < n.End() {
				m.pkg.report(e.Pos, "", "%s", strings.Join(strings.Fields(e.Msg), " "))
				said = true
			}
		}
	}
	if !said {
		m.pkg.report(m.decl.Name.Pos(), "", "%s", otherwise)
	}
}

// importsNamedIn are the imports that type expressions in node are qualified with.
func (s *source) importsNamedIn(node ast.Node) []ast.Node {
	var out []ast.Node
	ast.Inspect(node, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, _ := sel.X.(*ast.Ident)
		for _, spec := range s.imports() {
			if id != nil && (spec.Name != nil && spec.Name.Name == id.Name || spec.Name == nil && guessName(importPath(spec)) == id.Name) {
				out = append(out, spec)
			}
		}
		return false
	})
	return out
}

// invalid reports whether a type that can't be made out is written in t.
func invalid(t types.Type) bool {
	return written(t, func(t types.Type) bool {
		b, ok := t.(*types.Basic)
		return ok && b.Kind() == types.Invalid
	})
}

// written reports whether a type that is written in t fits. It looks through
// aliases, and not into named types: what they are made of is not repeated.
func written(t types.Type, fits func(types.Type) bool) bool {
	if fits(t) {
		return true
	}
	in := func(t types.Type) bool { return written(t, fits) }
	switch t := t.(type) {
	case *types.Alias:
		return in(t.Rhs()) || slices.ContainsFunc(slices.Collect(t.TypeArgs().Types()), in)
	case *types.Named:
		return slices.ContainsFunc(slices.Collect(t.TypeArgs().Types()), in)
	case *types.Map:
		return in(t.Key()) || in(t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, chan
		return in(t.Elem())
	case *types.Signature:
		return in(t.Params()) || in(t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			if in(v.Type()) {
				return true
			}
		}
	case *types.Struct:
		for f := range t.Fields() {
			if in(f.Type()) {
				return true
			}
		}
	case *types.Interface:
		for f := range t.ExplicitMethods() {
			if in(f.Type()) {
				return true
			}
		}
		return slices.ContainsFunc(slices.Collect(t.EmbeddedTypes()), in)
	case *types.Union:
		for i := range t.Len() {
			if in(t.Term(i).Type()) {
				return true
			}
		}
	}
	return false
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}

func isError(t types.Type) bool {
	return types.Identical(t, types.Universe.Lookup("error").Type())
}
