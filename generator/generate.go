package generator

import (
	"context"
	"go/ast"
	"slices"
)

// Options say what to generate for. The zero value means the package in the current directory.
type Options struct {
	Dir        string             // where the go command runs; empty means the current directory
	Patterns   []string           // as for the go command; none means "."
	Env        []string           // environment of the go command; nil means that of the process
	BuildFlags []string           // passed to the go command: "-tags=integration"
	Progress   func(stage string) // called for each stage, one at a time, unless nil

	Build *Build // used instead of Patterns; nil means the packages that the go command lists
}

// Result is the result of a run.
type Result struct {
	Packages    int          // how many packages were looked at
	Methods     int          // how many methods have a directive
	Folders     []string     // the folders of these packages
	Files       []File       // of packages without a diagnostic, sorted by path
	Diagnostics []Diagnostic // sorted, each once
	Warnings    []Diagnostic // problems that stop nothing; likewise
}

// Generate computes the generated file of each package that has a directive or lost its last one.
// Mistakes in directives are diagnostics. All mistakes of all packages are reported, and no file is
// generated for a package with a mistake. An error means that packages could not be loaded: the
// packages themselves or their imports, such as the runtime if go.mod does not require it yet.
// Together with an error, the result has the diagnostics that could still be found, and no file.
func Generate(ctx context.Context, opts Options) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := newRun(ctx, opts)
	if opts.Build != nil {
		return r.generateBuild(ctx)
	}
	g := r.startGuess(ctx)
	listed, err := r.list(ctx)
	if err != nil {
		return r.unlisted(), err
	}
	r.stage("reading the directives of %d packages", len(listed))
	pkgs := r.parse(listed)
	parallel(len(pkgs), func(i int) { pkgs[i].scan() })
	units := r.plan(pkgs)
	imports, broken := r.loadImports(ctx, units, nil, g)
	if imports != nil {
		r.stage("generating %d packages", len(pkgs))
		r.generate(ctx, pkgs, units, imports)
	}
	res := r.result(pkgs)
	if broken != nil {
		res.Files = nil
	}
	return res, broken
}

// unlisted returns the result if the go command lists no package: the mistakes in the directives of
// the folders that the patterns name, as far as their text shows them.
func (r *run) unlisted() *Result {
	if !r.nameFolders() {
		return &Result{}
	}
	pkgs := r.scanFolders()
	parallel(len(pkgs), func(i int) { pkgs[i].scan() })
	r.dirs = nil
	for _, p := range pkgs {
		if !p.external {
			r.dirs = append(r.dirs, p.dir)
		}
	}
	res := r.result(pkgs)
	res.Files = nil
	return res
}

// generate makes the files of all builds.
func (r *run) generate(ctx context.Context, pkgs []*pkg, units [][]*unit, imports *importer) {
	waiting := r.round(ctx, units, imports, r.wrappedBy(pkgs))
	for len(waiting) > 0 {
		made := r.made(pkgs)
		if len(made) == len(r.overlay) { // what they wait for can't be generated
			r.round(ctx, waiting, imports, nil)
			return
		}
		r.overlay = made
		if im, err := r.loadImports(ctx, waiting, nil, nil); err == nil {
			imports = im
		}
		waiting = r.round(ctx, waiting, imports, r.wrappedBy(pkgs))
	}
}

// round generates for some builds. It returns those that need a package for which this run
// generates, because types that they name may not be generated yet.
func (r *run) round(ctx context.Context, units [][]*unit, imports *importer, making map[string]bool) (waiting [][]*unit) {
	left := make([][]*unit, len(units))
	parallel(len(units), func(i int) {
		planned := slices.Clone(units[i]) // what a test needs of the package that it tests comes first
		for at := 0; at < len(planned); at++ {
			u := planned[at]
			if !u.generate(ctx, imports, making) {
				left[i] = planned[at:]
				return
			}
			planned = append(planned, u.planForeign()...)
		}
	})
	return slices.DeleteFunc(left, func(of []*unit) bool { return len(of) == 0 })
}

// wrappedBy returns the packages that this run generates for, by path.
func (r *run) wrappedBy(pkgs []*pkg) map[string]bool {
	out := map[string]bool{}
	for _, p := range pkgs {
		if !p.external && len(p.targets) > 0 {
			out[p.path] = true
		}
	}
	return out
}

// made returns the files that were generated so far and are not written yet, by path.
func (r *run) made(pkgs []*pkg) map[string][]byte {
	out := map[string][]byte{}
	for _, p := range pkgs {
		if len(p.diagnostics) > 0 {
			continue
		}
		for _, f := range p.result() {
			if c := f.Change(); c == Create && f.New != nil || c == Update {
				out[f.Path] = f.New
			}
		}
	}
	return out
}

// generate generates one build of one package. It gives up, for another round, if an annotated
// signature can't be resolved while one of its imports is being generated.
func (u *unit) generate(ctx context.Context, imports *importer, making map[string]bool) (done bool) {
	u.load(imports)
	u.others = u.foreignBuilds()
	if u.config != nil && (u.tested != nil || u.incomplete() || slices.ContainsFunc(u.others, u.config.satisfies)) {
		for _, when := range u.others {
			if u.config.satisfies(when) {
				u.config = u.config.compiling(when)
			}
		}
		if im, err := u.pkg.run.loadImports(ctx, [][]*unit{{u}}, u.config, nil); err == nil {
			u.load(im)
		}
	}
	if u.incomplete() && u.importsOne(making) {
		return false
	}
	u.find()
	models := u.resolve()
	if imports.withoutRuntime {
		return true // this is an error, and mistakes in the directives are already reported
	}
	u.render(models)
	u.verify()
	return true
}

// importsOne reports whether a file of the build imports one of these packages.
func (u *unit) importsOne(paths map[string]bool) bool {
	return slices.ContainsFunc(u.files, func(f *source) bool {
		return slices.ContainsFunc(f.imports(), func(s *ast.ImportSpec) bool { return paths[importPath(s)] })
	})
}
