package generator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// Build is one package of one configuration, as a build system such as Bazel passes it. No go
// command runs for it, and nothing is read that it does not name. All paths may be relative to
// [Options.Dir]. The output file is written even without a directive: then it has only a package
// clause.
type Build struct {
	Files      []string // all Go files of the package; files that lockgen wrote are left out
	ImportPath string
	Exports    string // file with the paths of export data; docs/bazel.md describes its format
	Output     string // the file to generate; if its name ends in _test.go, it has the code for the tests among Files
}

// generateBuild is Generate for a package that a build system passes.
func (r *run) generateBuild(ctx context.Context) (*Result, error) {
	b := r.opts.Build
	var err error
	if r.exports, err = readExports(absolute(r.opts.Dir, b.Exports), r.opts.Dir); err != nil {
		return &Result{}, err
	}
	p := r.handedOver(b)
	pkgs := []*pkg{p}
	p.scan()
	units := r.plan(pkgs)
	imports, broken := r.loadImports(ctx, units, nil, nil)
	if imports != nil {
		r.generate(ctx, pkgs, units, imports)
	}
	res := r.result(pkgs)
	if broken != nil || len(res.Diagnostics) > 0 {
		res.Files = nil
		return res, broken
	}
	return res, r.oneFile(p, res)
}

// handedOver parses the files that are in this build. It drops their constraints, because each
// configuration has its own output.
func (r *run) handedOver(b *Build) *pkg {
	p := &pkg{run: r, path: b.ImportPath, outputs: map[string]*output{}}
	var paths []string
	for _, path := range b.Files {
		paths = append(paths, absolute(r.opts.Dir, path))
	}
	slices.Sort(paths) // the go command's order, which decides about names and declarations
	for _, path := range slices.Compact(paths) {
		if p.dir == "" {
			p.dir = filepath.Dir(path)
			r.dirs = []string{p.dir}
		}
		f, err := r.readFile(path)
		if err == nil && f.text == nil {
			f.text, err = f.content()
		}
		if err == nil && isOwn(f.text) {
			continue
		}
		if err == nil {
			err = p.parseFile(f)
		}
		if err != nil {
			p.diagnostics, p.partial = append(p.diagnostics, notRead(path, err)), true
			continue
		}
		if r.host.satisfies(f.when) {
			f.when, f.listed = nil, true
			p.files = append(p.files, f)
		}
	}
	p.findName()
	return p
}

// oneFile turns the generated files into the one file that the build system expects.
func (r *run) oneFile(p *pkg, res *Result) error {
	path := absolute(r.opts.Dir, r.opts.Build.Output)
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return err
	case !isOwn(old):
		return fmt.Errorf("%s was not written by lockgen and stays as it is", path)
	}
	test := strings.HasSuffix(path, "_test.go")
	made := slices.DeleteFunc(res.Files, func(f File) bool { return f.New == nil })
	ofTests := slices.ContainsFunc(made, func(f File) bool { return strings.HasSuffix(f.Path, "_test.go") })
	res.Files = nil
	if ofTests && !test {
		return fmt.Errorf("there are directives in tests, and %s is no test: generate a second file, whose name ends in _test.go", filepath.Base(path))
	}
	made = slices.DeleteFunc(made, func(f File) bool { return strings.HasSuffix(f.Path, "_test.go") != test })
	text := []byte(templates.Header + "\n\npackage " + p.name + "\n")
	if len(made) == 1 {
		text = made[0].New
	}
	res.Files = []File{{Path: path, Package: p.path, Old: old, New: text}}
	return nil
}
