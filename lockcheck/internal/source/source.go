// Package source loads the main module, including its tests, with the syntax and types of its
// packages. It also checks the packages with some texts replaced.
package source

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// World is the main module. It includes the tests, because they must compile after a change too.
type World struct {
	Fset   *token.FileSet
	Units  []*Unit              // imports first
	Parsed map[string]*ast.File // by path, with one tree for all units
	Texts  map[string][]byte    // by path
	Asked  map[string]bool      // files of the packages that were asked for

	exports map[string]string // export data of other modules, by import path
	foreign types.Importer
	conf    packages.Config
}

// Unit is one package as the go command builds it: alone, or together with its tests.
type Unit struct {
	Listed *packages.Package
	Files  []*ast.File
	Pkg    *types.Package
	Info   *types.Info
}

const (
	askMode  = packages.NeedName | packages.NeedFiles | packages.NeedModule
	listMode = askMode | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile | packages.NeedForTest
)

// Load loads the packages that the patterns name, and the rest of their module. It blocks while the
// go command compiles their imports. A package that does not compile is an error.
func Load(ctx context.Context, dir string, buildFlags, patterns []string) (*World, error) {
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	conf := packages.Config{Context: ctx, Mode: askMode, Dir: dir, BuildFlags: buildFlags, Tests: true}
	asked, err := packages.Load(&conf, patterns...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	w := &World{Fset: token.NewFileSet(), Parsed: map[string]*ast.File{}, Texts: map[string][]byte{}, Asked: map[string]bool{}, exports: map[string]string{}}
	modules := map[string]bool{}
	for _, p := range asked {
		if len(p.GoFiles) == 0 && len(p.Errors) > 0 {
			return nil, errors.New(p.Errors[0].Msg)
		}
		for _, file := range p.GoFiles {
			w.Asked[file] = true
		}
		if p.Module != nil && p.Module.Main {
			modules[p.Module.Dir+"/..."] = true
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("no package of the main module in %s", strings.Join(patterns, " "))
	}
	conf.Mode = listMode
	listed, err := packages.Load(&conf, slices.Sorted(maps.Keys(modules))...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	w.order(listed)
	w.conf = conf
	w.foreign = importer.ForCompiler(w.Fset, "gc", w.open)
	return w, w.Check(w.Units, nil)
}

// order makes units of the packages of the main module, imports first, and records where the export
// data of all others is.
func (w *World) order(listed []*packages.Package) {
	seen := map[*packages.Package]bool{}
	var visit func(p *packages.Package)
	visit = func(p *packages.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, path := range slices.Sorted(maps.Keys(p.Imports)) {
			visit(p.Imports[path])
		}
		switch {
		case p.Module == nil || !p.Module.Main:
			w.exports[p.PkgPath] = p.ExportFile
		case !strings.HasSuffix(p.ID, ".test"): // the program that runs the tests is generated
			w.Units = append(w.Units, &Unit{Listed: p})
		}
	}
	slices.SortFunc(listed, func(a, b *packages.Package) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range listed {
		visit(p)
	}
}

func (w *World) open(path string) (io.ReadCloser, error) {
	if w.exports[path] == "" {
		return nil, fmt.Errorf("no export data of %s: does it compile?", path)
	}
	return os.Open(w.exports[path])
}

// file parses a file once, or parses the text that replaces it.
func (w *World) file(path string, texts map[string][]byte) (*ast.File, error) {
	text, changed := texts[path]
	if file := w.Parsed[path]; file != nil && !changed {
		return file, nil
	}
	if !changed {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	file, err := parser.ParseFile(w.Fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil && !changed {
		w.Parsed[path], w.Texts[path] = file, text
	}
	return file, err
}

// Check finds the types of units with the texts of some files replaced. Units must come after their
// imports. The first mistake ends it.
func (w *World) Check(units []*Unit, texts map[string][]byte) error {
	done := map[*packages.Package]*types.Package{}
	for _, u := range w.Units {
		done[u.Listed] = u.Pkg
	}
	for _, u := range units {
		if err := w.types(u, done, texts); err != nil {
			return err
		}
		done[u.Listed] = u.Pkg
	}
	return nil
}

func (w *World) types(u *Unit, done map[*packages.Package]*types.Package, texts map[string][]byte) error {
	u.Files = nil
	for _, path := range u.Listed.GoFiles {
		file, err := w.file(path, texts)
		if err != nil {
			return err
		}
		u.Files = append(u.Files, file)
	}
	if len(u.Files) == 0 && len(u.Listed.Errors) > 0 {
		return errors.New(u.Listed.Errors[0].Msg)
	}
	u.Info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{}, Instances: map[*ast.Ident]types.Instance{}, Scopes: map[ast.Node]*types.Scope{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Sizes: types.SizesFor("gc", runtime.GOARCH), FakeImportC: true}
	conf.Importer = importerFunc(func(path string) (*types.Package, error) {
		return w.imported(u, path, done)
	})
	if m := u.Listed.Module; m.GoVersion != "" {
		conf.GoVersion = "go" + m.GoVersion
	}
	pkg, err := conf.Check(u.Listed.PkgPath, w.Fset, u.Files, u.Info)
	u.Pkg = pkg
	return err
}

// imported finds an import of a unit: one that it has, or one that will be added.
func (w *World) imported(u *Unit, path string, done map[*packages.Package]*types.Package) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := u.Listed.Imports[path]; p != nil {
		if pkg := done[p]; pkg != nil {
			return pkg, nil
		}
		path = p.PkgPath // for example of a vendored package
	}
	if !visible(path, u.Listed.PkgPath) {
		return nil, fmt.Errorf("%s is internal to other packages than %s", path, u.Listed.PkgPath)
	}
	for _, other := range w.Units {
		if other.Listed.ID != path {
			continue
		}
		if other.Pkg.Name() == "main" {
			return nil, fmt.Errorf("%s is a program, which can't be imported", path)
		}
		if Imports(other.Listed, u.Listed.PkgPath) {
			return nil, fmt.Errorf("import cycle: %s imports %s", path, u.Listed.PkgPath)
		}
		return done[other.Listed], nil
	}
	if w.exports[path] == "" {
		if err := w.find(path); err != nil {
			return nil, err
		}
	}
	return w.foreign.Import(path)
}

// visible reports whether a package may import another one, as far as folders named internal decide
// it. An empty from may import all packages.
func visible(path, from string) bool {
	at := strings.LastIndex("/"+path+"/", "/internal/")
	if at < 0 || from == "" {
		return true
	}
	parent := strings.TrimSuffix(path[:max(at-1, 0)], "/")
	return parent == "" || from == parent || strings.HasPrefix(from, parent+"/")
}

// Package returns a package by its import path: a package of the module, or one that nothing
// imports yet.
func (w *World) Package(path string) (*types.Package, error) {
	done := map[*packages.Package]*types.Package{}
	for _, u := range w.Units {
		done[u.Listed] = u.Pkg
	}
	return w.imported(&Unit{Listed: &packages.Package{}}, path, done)
}

// Imports reports whether p is, or imports, the package of a path.
func Imports(p *packages.Package, path string) bool {
	if p.PkgPath == path {
		return true
	}
	for _, imp := range p.Imports {
		if imp.Module != nil && imp.Module.Main && Imports(imp, path) {
			return true
		}
	}
	return false
}

// find asks the go command for the export data of a package that nothing imports yet.
func (w *World) find(path string) error {
	conf := w.conf
	conf.Mode, conf.Tests = listMode, false
	found, err := packages.Load(&conf, path)
	if err != nil {
		return err
	}
	packages.Visit(found, nil, func(p *packages.Package) {
		if w.exports[p.PkgPath] == "" {
			w.exports[p.PkgPath] = p.ExportFile
		}
	})
	return nil
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
