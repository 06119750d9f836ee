// Package migrate rewrites a code base so that it calls annotated code through its
// generated wrappers. The data goes one way:
//
//	load      package internal/source: the module and its tests, with types
//	wrappers  wrapped.go  which types and functions have a wrapper
//	flow      nodes.go    the variables, fields, parameters and results that hold a *T
//	          uses.go     every value of type *T, and where it goes
//	          makers.go   calls with several results, of which one is a *T
//	          held.go     calls inside of a function that holds the lock already
//	decide    decide.go   which of them become a *TWithLock, and where a value is wrapped
//	rewrite   calls.go    calls of annotated functions
//	          locker.go   the Locker that each wrap is given
//	          edit.go     edits of text; comments and layout stay
//	verify    verify.go   changes that would not compile are dropped
//	          rest.go     what lockcheck still finds is left as it is
//
// A variable, field, parameter or result of type *T becomes a *TWithLock if an annotated
// method is called through it, or if such a value is assigned to it. A *T that is assigned to
// one of them, or to an interface that has an annotated method, is wrapped.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"go/ast"
	"go/token"
	"slices"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// Options say what to rewrite. The zero value is the package in the current directory.
type Options struct {
	Dir        string   // where the go command runs; empty means the current directory
	Patterns   []string // as for the go command; none means "."
	BuildFlags []string // passed to the go command: "-tags=integration"

	// Locker is the expression that is passed to wrappers: "locker", "app.Locker", or with
	// an import path "example.com/shop/app.Locker". The path is imported where it is
	// needed. If Locker is empty, the only *lock.Locker in scope is used: a variable, a
	// field of the receiver, or a variable of the package.
	Locker string
}

// File is one file before and after the migration.
type File struct {
	Path     string // the absolute path
	Old, New []byte
}

// Left is a place that is left as it is.
type Left struct {
	File         string // the absolute path
	Line, Column int    // from 1, the column in bytes
	Message      string // why, and what to do
}

// Result is what a run would change. Run writes no files.
type Result struct {
	Files []File // the files that change, by path
	Left  []Left // by place
	Raw   int    // how many calls without their lock were found
}

// Run loads the module of the packages, and returns how to rewrite the packages. It blocks
// while the go command compiles the imports. An error means that something could not be
// loaded or does not compile; then there is no result.
func Run(ctx context.Context, opts Options) (*Result, error) {
	w, err := source.Load(ctx, opts.Dir, opts.BuildFlags, opts.Patterns)
	if err != nil {
		return nil, err
	}
	if err := checkLocker(w, opts.Locker); err != nil {
		return nil, err
	}
	m := &migration{World: w, opts: opts, wraps: map[string]*wrapped{}, nodes: map[nodeID]*node{}, guards: map[token.Pos][]generator.Directive{}, seen: map[seenKey]bool{}, raw: map[module.Place]bool{}, tuples: map[module.Place][]*node{}, ignores: map[*ast.File][]facts.Ignore{}}
	if !m.flow() {
		return nil, errors.New("no package calls code that has a wrapper: annotate a method, run lockgen, then migrate")
	}
	m.decide()
	m.functions()
	if err := m.rest(ctx); err != nil {
		return nil, err
	}
	res := &Result{Files: m.verified(), Left: m.left, Raw: len(m.raw)}
	slices.SortFunc(res.Left, func(a, b Left) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	res.Left = slices.Compact(res.Left)
	return res, nil
}
