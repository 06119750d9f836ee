package generator

import (
	"context"
	"go/token"
)

// Options say what to generate for. The zero value is the package in the
// current directory.
type Options struct {
	Dir        string             // where the go command runs; empty is the current directory
	Patterns   []string           // as the go command takes them; none is "."
	Env        []string           // environment of the go command; nil is the process's own
	BuildFlags []string           // passed to the go command: "-tags=integration"
	Progress   func(stage string) // told of each stage, if set
}

// Result is what a run found out.
type Result struct {
	Packages    int          // how many packages were looked at
	Methods     int          // how many methods have a directive
	Files       []File       // of packages without a diagnostic, sorted by path
	Diagnostics []Diagnostic // sorted, each once
}

// Generate computes the generated file of each package that has a directive or
// lost its last one. An error means that the packages could not be loaded;
// mistakes in directives are diagnostics, all of them of all packages, and a
// package that has one yields no file.
func Generate(ctx context.Context, opts Options) (*Result, error) {
	r := &run{opts: opts, fset: token.NewFileSet()}
	listed, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	r.stage("reading the directives of %d packages", len(listed))
	pkgs := r.parse(listed)
	for _, p := range pkgs {
		p.scan()
	}
	imports, err := r.loadImports(ctx, pkgs)
	if err != nil {
		return nil, err
	}
	r.stage("generating %d packages", len(pkgs))
	for _, p := range pkgs {
		p.check(imports)
		p.resolve()
		p.render()
		p.verify(imports)
	}
	return r.result(pkgs), nil
}
