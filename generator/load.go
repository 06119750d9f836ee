package generator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// RuntimePath is the import path of the package that generated code calls.
const RuntimePath = "github.com/lockgen/lockgen/runtime"

const getTool = "go get -tool github.com/lockgen/lockgen/cmd/lockgen"

// run is one call of Generate.
type run struct {
	opts Options
	fset *token.FileSet
	seen int // packages listed
}

func (r *run) stage(format string, args ...any) {
	if r.opts.Progress != nil {
		r.opts.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *run) config(ctx context.Context, mode packages.LoadMode) *packages.Config {
	return &packages.Config{
		Context: ctx, Mode: mode, Fset: r.fset,
		Dir: r.opts.Dir, Env: r.opts.Env, BuildFlags: r.opts.BuildFlags,
	}
}

func (r *run) patterns() []string {
	if len(r.opts.Patterns) == 0 {
		return []string{"."}
	}
	return r.opts.Patterns
}

// list asks the go command for the packages and their files, and for nothing
// that it would have to resolve or compile: a package whose generated file is
// missing or broken is listed all the same.
func (r *run) list(ctx context.Context) ([]*packages.Package, error) {
	for _, p := range r.patterns() {
		if strings.HasSuffix(p, ".go") {
			return nil, fmt.Errorf("%s: name packages, not files: the directives of a package go into one file", p)
		}
	}
	r.stage("listing packages")
	found, err := packages.Load(r.config(ctx, packages.NeedName|packages.NeedFiles|packages.NeedModule), r.patterns()...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if len(found) == 0 {
		return nil, r.explainEmpty(ctx, r.patterns())
	}
	r.seen = len(found)
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

// explainEmpty asks the go command itself why there are no packages: go/packages
// returns none, and no error, where go.mod needs an update.
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

// loadImports loads the types of what the annotated code depends on, from
// export data; go/packages falls back to source for what does not compile. The
// annotated packages themselves are never loaded so: the go command would
// compile each of them, and fail while the generated file is missing.
func (r *run) loadImports(ctx context.Context, pkgs []*pkg) (*importer, error) {
	need := map[string]bool{}
	for _, p := range pkgs {
		for _, path := range p.neededImports() {
			need[path] = true
		}
	}
	im := newImporter()
	if len(need) == 0 {
		return im, nil
	}
	// What the generated code itself imports.
	need[RuntimePath], need["strconv"], need["time"] = true, true, true
	delete(need, "C")
	delete(need, "unsafe")
	paths := sortedKeys(need)

	r.stage("loading the types of %d imports", len(paths))
	loaded, err := packages.Load(r.config(ctx, packages.NeedName|packages.NeedTypes), paths...)
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if len(loaded) == 0 {
		return nil, r.explainEmpty(ctx, paths)
	}
	for _, p := range loaded {
		im.add(p)
	}
	if im.packages[RuntimePath] == nil {
		return nil, fmt.Errorf("generated code imports %s, which can't be loaded here; run: %s", RuntimePath, getTool)
	}
	return im, nil
}

// sibling files of a package that the go command did not list: tests, which it
// lists on demand only.
func testFiles(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*_test.go")) // the pattern is valid
	return found
}

func (r *run) result(pkgs []*pkg) *Result {
	res := &Result{Packages: r.seen}
	for _, p := range pkgs {
		res.Methods += len(p.methods)
		res.Diagnostics = append(res.Diagnostics, p.diagnostics...)
		if len(p.diagnostics) == 0 {
			if f, ok := p.file(); ok {
				res.Files = append(res.Files, f)
			}
		}
	}
	res.Diagnostics = sortDiagnostics(res.Diagnostics)
	slices.SortFunc(res.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return res
}

func readIfThere(path string) ([]byte, bool) {
	text, err := os.ReadFile(path)
	return text, err == nil
}
