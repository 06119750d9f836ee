package module

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	importers "go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// loader makes types. It reads packages that have changed from source, and their imports from
// export data. So packages that have changed are not compiled.
type loader struct {
	opts    Options
	cache   *cache
	exports map[string]string // import path: file

	fset *token.FileSet

	mu       sync.Mutex                // guards what follows
	known    map[string]*types.Package // from source
	compiled types.Importer
}

func newLoader(opts Options, cache *cache) *loader {
	l := &loader{opts: opts, cache: cache, fset: token.NewFileSet(), known: map[string]*types.Package{}}
	l.compiled = importers.ForCompiler(l.fset, "gc", l.open)
	return l
}

// exported asks the go command for the export data of the packages' imports, unless the cache
// has the answer.
func (l *loader) exported(ctx context.Context, changed []*packages.Package) error {
	isChanged := map[string]bool{}
	for _, p := range changed {
		isChanged[p.PkgPath] = true
	}
	needed := map[string]string{}
	for _, p := range changed {
		for _, imp := range p.Imports {
			if !isChanged[imp.PkgPath] && imp.PkgPath != "unsafe" {
				needed[imp.PkgPath] = l.cache.key(imp)
			}
		}
	}
	l.exports = map[string]string{}
	if len(needed) == 0 {
		return nil
	}
	all := "exports\n"
	for _, path := range sortedKeys(needed) {
		all += path + " " + needed[path] + "\n"
	}
	key := digestOf([]byte(all))
	if l.cache.get(key, &l.exports) && exist(l.exports) {
		return nil
	}
	args := append([]string{"list", "-e", "-export", "-json=ImportPath,Export"}, l.opts.BuildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(append(args, "--"), sortedKeys(needed)...)...)
	cmd.Dir = l.opts.Dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		return fmt.Errorf("go list -export: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	l.exports = map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("go list -export: %w", err)
		}
		if p.Export != "" {
			l.exports[p.ImportPath] = p.Export
		}
	}
	if len(l.exports) == len(needed) {
		l.cache.put(key, l.exports)
	}
	return nil
}

// exist reports whether the go command's cache still has the files.
func exist(files map[string]string) bool {
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return false
		}
	}
	return true
}

// importer finds the imports of one package.
type importer struct {
	*loader
	of *packages.Package
}

// Import implements [types.Importer].
func (im importer) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := im.of.Imports[path]; p != nil {
		path = p.PkgPath // differs for a vendored package
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if p := im.known[path]; p != nil {
		return p, nil
	}
	if im.exports[path] == "" {
		return nil, fmt.Errorf("something that it imports does not compile: %s", path)
	}
	return im.compiled.Import(path)
}

// open opens the export data of a package.
func (l *loader) open(path string) (io.ReadCloser, error) { return os.Open(l.exports[path]) }

// source parses and checks a package. The first error is in its Errors.
func (l *loader) source(p *packages.Package) {
	p.Fset = l.fset
	fail := func(pos token.Position, msg string) {
		p.Errors = append(p.Errors, packages.Error{Pos: pos.String(), Msg: msg, Kind: packages.TypeError})
	}
	for _, path := range p.GoFiles {
		file, err := parser.ParseFile(l.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			p.Errors = append(p.Errors, packages.Error{Msg: err.Error(), Kind: packages.ParseError})
			return
		}
		p.Syntax = append(p.Syntax, file)
	}
	p.TypesInfo = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{}, Instances: map[*ast.Ident]types.Instance{}, Scopes: map[ast.Node]*types.Scope{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, FileVersions: map[*ast.File]string{},
	}
	p.TypesSizes = types.SizesFor("gc", cmp.Or(l.cache.env["GOARCH"], runtime.GOARCH))
	conf := types.Config{Importer: importer{l, p}, Sizes: p.TypesSizes, FakeImportC: true, Error: func(err error) {
		if e, ok := err.(types.Error); ok {
			fail(l.fset.Position(e.Pos), e.Msg)
		}
	}}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	p.Types, _ = conf.Check(p.PkgPath, l.fset, p.Syntax, p.TypesInfo)
	if len(p.Errors) == 0 {
		l.mu.Lock()
		l.known[p.PkgPath] = p.Types
		l.mu.Unlock()
	}
}
