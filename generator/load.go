package generator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// RuntimePath is the import path of the package that generated code calls.
const RuntimePath = "github.com/lockgen/lockgen/runtime"

const getTool = "go get -tool github.com/lockgen/lockgen/cmd/lockgen"

// run is one call of Generate.
type run struct {
	ctx     context.Context // the context of the call
	opts    Options
	fset    *token.FileSet
	host    *config
	foreign foreignFiles
	texts   sync.Map          // by path: *source, as it was first read
	folders sync.Map          // by path: []string, the Go files of a folder
	parsed  sync.Map          // by path: *parsed
	names   sync.Map          // by path: the name of the package, once it was loaded
	dirs    []string          // the folders of the packages that were listed
	exports *exports          // the exports of a Build
	overlay map[string][]byte // by path: files that were generated for packages that others need

	telling sync.Mutex // held while Options.Progress runs, because the guess reports stages too
}

func newRun(ctx context.Context, opts Options) *run {
	return &run{ctx: ctx, opts: opts, fset: token.NewFileSet(), host: hostConfig(opts)}
}

func (r *run) stage(format string, args ...any) {
	if r.opts.Progress != nil {
		r.telling.Lock()
		defer r.telling.Unlock()
		r.opts.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *run) config(ctx context.Context, mode packages.LoadMode) *packages.Config {
	return &packages.Config{
		Context: ctx, Mode: mode, Fset: r.fset,
		Dir: r.opts.Dir, Env: r.opts.Env, BuildFlags: r.opts.BuildFlags, Overlay: r.overlay,
	}
}

func (r *run) patterns() []string {
	if len(r.opts.Patterns) == 0 {
		return []string{"."}
	}
	return r.opts.Patterns
}

// list asks the go command for the packages and their files, and for nothing that needs to be
// resolved or compiled. So a package whose generated file is missing or broken is listed too.
func (r *run) list(ctx context.Context) ([]*packages.Package, error) {
	for _, p := range r.patterns() {
		if strings.HasSuffix(p, ".go") {
			return nil, fmt.Errorf("%s: name packages, not files: the directives of a package go into one file", p)
		}
	}
	r.stage("listing packages")
	found, err := packages.Load(r.config(ctx, packages.NeedName|packages.NeedFiles), r.patterns()...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if len(found) == 0 {
		return nil, r.explainEmpty(ctx, r.patterns())
	}
	for _, p := range found {
		r.dirs = append(r.dirs, folder(p))
	}
	var broken []error
	for _, p := range found {
		if len(p.GoFiles)+len(p.IgnoredFiles)+len(p.OtherFiles) == 0 {
			for _, e := range p.Errors {
				broken = append(broken, errors.New(e.Msg))
			}
		}
	}
	slices.SortFunc(found, func(a, b *packages.Package) int { return strings.Compare(a.PkgPath, b.PkgPath) })
	return found, errors.Join(broken...)
}

// explainEmpty asks the go command why there are no packages: go/packages returns none, and no
// error, if go.mod needs an update.
func (r *run) explainEmpty(ctx context.Context, patterns []string) error {
	args := append([]string{"list", "-deps"}, r.opts.BuildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(append(args, "--"), patterns...)...)
	cmd.Dir = r.opts.Dir
	cmd.Env = r.opts.Env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if said := strings.TrimSpace(stderr.String()); said != "" {
		return fmt.Errorf("the go command lists no package:\n%s", said)
	}
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	return fmt.Errorf("no package matches %s", strings.Join(patterns, " "))
}

// plan returns the builds to generate for. Those of a package and of its external tests are
// together, in this order.
func (r *run) plan(pkgs []*pkg) [][]*unit {
	var out [][]*unit
	for _, p := range pkgs {
		p.plan()
	}
	for _, p := range pkgs {
		switch {
		case len(p.units) == 0:
		case p.external && len(p.tested.units) > 0:
			last := len(out) - 1 // of the package that it tests, which comes before it
			out[last] = append(out[last], p.units...)
		default:
			out = append(out, p.units)
		}
	}
	return out
}

// loadImports loads the types of the imports of the annotated code from export data; go/packages
// uses source for packages that do not compile. The annotated packages themselves are never loaded
// in this way: the go command would compile each of them, and fail while the generated file is
// missing. With a configuration it loads for that one instead of the present build.
func (r *run) loadImports(ctx context.Context, units [][]*unit, c *config, g *guess) (im *importer, err error) {
	g.wait()
	var loaded []string
	for err == nil {
		paths := r.neededImports(units)
		switch {
		case len(paths) == 0:
			return newImporter(), nil
		case g.covers(paths):
			return g.im, nil
		case im != nil && containsAll(loaded, paths):
			return im, nil
		}
		if c == nil {
			r.stage("loading the types of %d imports", len(paths))
		}
		im, err = r.loadTypes(ctx, paths, c)
		loaded = paths // now their names are known, and other imports may be needed
	}
	return im, err
}

// neededImports lists the imports of all these builds, and those of the generated code itself.
func (r *run) neededImports(units [][]*unit) []string {
	need := map[string]bool{}
	for _, u := range slices.Concat(units...) {
		for _, path := range u.neededImports() {
			need[path] = true
		}
	}
	if len(need) == 0 {
		return nil
	}
	need[RuntimePath], need["slices"], need["strconv"], need["time"] = true, true, true, true
	delete(need, "C")
	delete(need, "unsafe")
	return sortedKeys(need)
}

// loadTypes loads the types of these imports. Without the runtime nothing can be generated, which
// is an error. The other imports are returned even then, because directives can be checked against
// them.
func (r *run) loadTypes(ctx context.Context, paths []string, c *config) (*importer, error) {
	if r.exports != nil {
		return r.exports.load(r, paths)
	}
	conf := r.config(ctx, packages.NeedName|packages.NeedFiles|packages.NeedTypes)
	c.apply(conf)
	loaded, err := packages.Load(conf, paths...)
	if err == nil && slices.ContainsFunc(loaded, unreadable) {
		r.stage("loading %d imports from source", len(paths))
		loaded, err = packages.Load(fromSource(conf), paths...)
	}
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if len(loaded) == 0 {
		return nil, r.explainEmpty(ctx, paths)
	}
	im := newImporter()
	for _, p := range loaded {
		im.add(p)
		if p.Name != "" {
			r.names.Store(p.PkgPath, p.Name)
		}
	}
	if im.packages[RuntimePath] == nil {
		run := getTool
		if strings.Contains(im.failed[RuntimePath], "-mod=vendor") {
			run += " && go mod vendor"
		}
		im.withoutRuntime = true
		return im, fmt.Errorf("generated code imports %s, which can't be loaded here; run: %s", RuntimePath, run)
	}
	return im, nil
}

// unreadable reports whether the export data of a package can't be read, because a newer Go wrote
// it than the one that built lockgen. A package that does not compile has none, and go/packages
// then uses source by itself.
func unreadable(p *packages.Package) bool {
	return (p.Types == nil || !p.Types.Complete()) &&
		slices.ContainsFunc(p.Errors, func(e packages.Error) bool { return e.Kind == packages.UnknownError })
}

// fromSource returns conf for loading all packages from source. A package from source and another
// one from export data would not share their types.
func fromSource(conf *packages.Config) *packages.Config {
	source := *conf
	source.Mode |= packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypesSizes
	source.ParseFile = func(fset *token.FileSet, path string, text []byte) (*ast.File, error) {
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if file != nil {
			stripBodies(file)
		}
		return file, err
	}
	return &source
}

func (r *run) result(pkgs []*pkg) *Result {
	res := &Result{Packages: len(r.dirs), Folders: r.dirs}
	wrong := map[string]bool{} // by folder: a package and its external tests are written together
	for _, p := range pkgs {
		p.reportForeign()
		res.Methods += len(p.targets)
		res.Diagnostics = append(res.Diagnostics, p.diagnostics...)
		res.Warnings = append(res.Warnings, p.warnings...)
		wrong[p.dir] = wrong[p.dir] || len(p.diagnostics) > 0
	}
	for _, p := range pkgs {
		if !wrong[p.dir] {
			res.Files = append(res.Files, p.result()...)
		}
	}
	res.Diagnostics = sortDiagnostics(res.Diagnostics)
	res.Warnings = sortDiagnostics(res.Warnings)
	slices.SortFunc(res.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return res
}
