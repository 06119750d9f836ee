package generator

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"

	"golang.org/x/tools/go/packages"
)

// importer gives go/types the imports that were loaded. An import that was not loaded is an error,
// for which go/types makes a package without contents.
type importer struct {
	packages map[string]*types.Package
	failed   map[string]string  // by path: the go command's message
	files    map[string]goFiles // by path

	withoutRuntime bool // the runtime was asked for, and could not be loaded
}

// goFiles are the Go files of a package, those of this build first.
type goFiles struct {
	all    []string
	listed int
}

func filesOf(p *packages.Package) goFiles {
	return goFiles{slices.Concat(p.GoFiles, p.IgnoredFiles), len(p.GoFiles)}
}

func newImporter() *importer {
	return &importer{packages: map[string]*types.Package{}, failed: map[string]string{}, files: map[string]goFiles{}}
}

func (im *importer) add(p *packages.Package) {
	im.files[p.PkgPath] = filesOf(p)
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

// syntaxFor returns the file with a probable name for each import that was not loaded. go/types
// would name such an import by the last element of its path, so that two that end in v2 would share
// a name. If the guess is no identifier, or taken, it names nothing: a name that is selected from
// it is then undefined, as [unit.unloaded] expects.
func (s *source) syntaxFor(u *unit) *ast.File {
	named, taken := map[ast.Spec]*ast.ImportSpec{}, map[string]bool{}
	for _, spec := range s.imports() {
		if p := importPath(spec); spec.Name != nil {
			taken[spec.Name.Name] = true
		} else if known, _ := u.Import(p); known != nil {
			taken[known.Name()] = true
		} else if guess, _ := u.pkg.run.called(spec); p != "C" && guess != path.Base(p) {
			named[spec] = &ast.ImportSpec{Name: &ast.Ident{NamePos: spec.Pos(), Name: guess}, Path: spec.Path, EndPos: spec.End()}
		}
	}
	if len(named) == 0 {
		return s.syntax
	}
	for _, spec := range s.imports() {
		if n := named[spec]; n != nil {
			if !isIdentifier(n.Name.Name) || taken[n.Name.Name] {
				n.Name.Name = "_"
			}
			taken[n.Name.Name] = true
		}
	}
	file := *s.syntax
	file.Decls = slices.Clone(file.Decls)
	for i, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			imports := *g
			imports.Specs = slices.Clone(g.Specs)
			for j, spec := range imports.Specs {
				if named[spec] != nil {
					imports.Specs[j] = named[spec]
				}
			}
			file.Decls[i] = &imports
		}
	}
	return &file
}

// importsNamedIn returns the imports with which type expressions in node are qualified.
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

// invalid reports whether a type that is written in t, or in an alias there, is unknown.
func invalid(t types.Type) bool { return written(t, isInvalid) }

// unknown reports whether the fields and methods of t, or of the type to which t points, are
// unknown.
func unknown(t types.Type) bool {
	t = pointee(t)
	return invalid(t) || isInvalid(t.Underlying())
}

// pointee returns the type to which t points, or t.
func pointee(t types.Type) types.Type {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		return ptr.Elem()
	}
	return t
}

func isInvalid(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Kind() == types.Invalid
}

// written reports whether a type that is written in t fits. It looks through aliases, but not into
// named types, because their definitions are not repeated.
func written(t types.Type, fits func(types.Type) bool) bool {
	var through func(types.Type) bool
	through = func(t types.Type) bool {
		alias, ok := t.(*types.Alias)
		return fits(t) || ok && spelled(alias.Rhs(), through)
	}
	return spelled(t, through)
}

// spelled is like written, but looks only at the text of t, in which an alias is only its name.
func spelled(t types.Type, fits func(types.Type) bool) bool {
	if fits(t) {
		return true
	}
	in := func(t types.Type) bool { return spelled(t, fits) }
	switch t := t.(type) {
	case *types.Alias:
		return slices.ContainsFunc(slices.Collect(t.TypeArgs().Types()), in)
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
