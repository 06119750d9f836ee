package facts

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
)

// Analyzer computes the facts. It reports nothing.
var Analyzer = &analysis.Analyzer{
	Name:       "lockfacts",
	Doc:        "find out which functions run under which locks, and who calls whom",
	Run:        run,
	FactTypes:  []analysis.Fact{new(Closure)},
	ResultType: reflect.TypeFor[*Index](),
}

// Index has the facts of one package and of all packages that it imports.
type Index struct {
	Own            *Summary
	Summaries      []*Summary  // by path, including Own
	Files          []*ast.File // files written by hand, without tests
	Mistakes       []generator.Mistake
	IgnoreMistakes []IgnoreMistake
	Conversions    []Conversion

	Imported [][]*Summary // the summaries that each import has
	Whole    bool         // whether the driver joins all packages itself

	fset  *token.FileSet
	all   []*ast.File
	files map[string]*token.File
	kept  map[types.Object]bool // fields in which code under a lock keeps its context
	own   map[string]*Func
}

// At returns the place of pos.
func (ix *Index) At(pos token.Pos) Position {
	p := ix.fset.Position(pos)
	return Position{p.Filename, p.Line, p.Column}
}

// ByID returns the facts of a function, or nil.
func (ix *Index) ByID(id string) *Func {
	if f := ix.own[id]; f != nil {
		return f
	}
	if strings.HasPrefix(id, "(interface).") { // a method of an interface without a name, in any package
		for _, s := range ix.Summaries {
			if f := s.Func(id); f != nil {
				return f
			}
		}
		return nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(id, "("), "*")
	for end := strings.LastIndexByte(name, '/') + 1; end < len(name); end++ {
		if name[end] != '.' { // the last element of the import path may have dots: gopkg.in/yaml.v3
			continue
		}
		if at, ok := ix.summary(name[:end]); ok {
			if f := ix.Summaries[at].Func(id); f != nil {
				return f
			}
		}
	}
	return nil
}

func (ix *Index) summary(path string) (at int, found bool) {
	return slices.BinarySearchFunc(ix.Summaries, path, func(s *Summary, path string) int { return strings.Compare(s.Path, path) })
}

// Func returns the facts of fn, or nil. fn itself may be nil.
func (ix *Index) Func(fn *types.Func) *Func {
	if fn == nil {
		return nil
	}
	return ix.ByID(ID(fn, ix.fset))
}

// ID returns a name for a function that is the same in all packages. A method of an interface
// without a name gets the place of its declaration.
func ID(fn *types.Func, fset *token.FileSet) string {
	fn = fn.Origin()
	name := fn.FullName()
	if strings.HasPrefix(name, "(interface).") {
		at := fset.Position(fn.Pos())
		name += fmt.Sprintf("@%s:%d", at.Filename, at.Line) // export data has no columns
	}
	return name
}

// Guarded returns the annotated function that fn is, or nil.
func (ix *Index) Guarded(fn *types.Func) *Func {
	if f := ix.Func(fn); f != nil && len(f.Guard) > 0 {
		return f
	}
	return nil
}

func run(pass *analysis.Pass) (any, error) {
	ix := &Index{Own: &Summary{Path: pass.Pkg.Path()}, fset: pass.Fset, all: pass.Files, own: map[string]*Func{}}
	ix.imported(pass)
	if isStandard(pass) {
		return ix, nil
	}
	c := &collector{pass: pass, ix: ix, own: map[string]*Func{}, marked: map[string]mark{}}
	c.collect()
	ix.Own.Funcs = slices.SortedFunc(maps.Values(c.own), func(a, b *Func) int { return strings.Compare(a.ID, b.ID) })
	for _, f := range ix.Own.Funcs {
		ix.own[f.ID] = f
	}
	at, found := ix.summary(ix.Own.Path)
	if found { // the package under test, in the pass of its external tests
		ix.Summaries[at] = ix.Own
	} else {
		ix.Summaries = slices.Insert(ix.Summaries, at, ix.Own)
	}
	ix.export(pass)
	return ix, nil
}

// imported collects the summaries of the imports.
func (ix *Index) imported(pass *analysis.Pass) {
	known := map[string]*Summary{}
	for _, imp := range pass.Pkg.Imports() {
		var c Closure
		if !pass.ImportPackageFact(imp, &c) {
			continue
		}
		ix.Imported = append(ix.Imported, c.Summaries)
		for _, s := range c.Summaries {
			known[s.Path] = s
		}
	}
	for _, path := range slices.Sorted(maps.Keys(known)) {
		ix.Summaries = append(ix.Summaries, known[path])
	}
}

func (ix *Index) export(pass *analysis.Pass) {
	var c Closure
	for _, s := range ix.Summaries {
		if !s.Empty() {
			c.Summaries = append(c.Summaries, s)
		}
	}
	if len(c.Summaries) > 0 {
		pass.ExportPackageFact(&c)
	}
}

// isStandard reports whether a package is of the standard library, which takes no locks of this
// module.
func isStandard(pass *analysis.Pass) bool {
	if len(pass.Files) == 0 {
		return true
	}
	name := pass.Fset.Position(pass.Files[0].FileStart).Filename
	return pass.Module == nil && build.Default.GOROOT != "" && strings.HasPrefix(name, build.Default.GOROOT+"/src/")
}

// IsGenerated reports whether lockgen wrote the file.
func IsGenerated(file *ast.File) bool {
	for _, g := range file.Comments {
		if g.Pos() > file.Package {
			break
		}
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "// Code generated by lockgen.") {
				return true
			}
		}
	}
	return false
}
