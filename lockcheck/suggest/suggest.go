// Package suggest finds state that most callers write under one lock, and some without it. The
// data goes one way:
//
//	load    package internal/source: the module, with types
//	calls   calls.go    who calls whom, who is annotated, who writes
//	held    held.go     which locks a function certainly runs under, and which it may run under
//	odd     suggest.go  the callers that lack the lock
//
// If it can't decide, it suggests nothing: about code in a go statement, code that takes a lock
// by hand or asks for one, code that is reached under the lock on some paths only, code that
// holds another lock, and code that works on a value that it has just made.
package suggest

import (
	"cmp"
	"context"
	"fmt"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// Options say where to look. The zero value is the package in the current directory.
type Options struct {
	Dir        string   // where the go command runs; empty means the current directory
	Patterns   []string // as for the go command; none means "."
	BuildFlags []string // passed to the go command: "-tags=integration"
}

// Place is a position in a file.
type Place struct {
	File         string // the absolute path
	Line, Column int    // from 1, the column in bytes
}

// Suggestion is a call that reaches a write without the lock that others hold.
type Suggestion struct {
	Place
	Function string  // the function that writes: "shop.Store.Save"
	Caller   string  // the function that calls it here: "shop.Admin.Reset"
	Key      string  // "shop:item:<id>", as most of the others spell it in their directives
	Under    int     // callers that hold the lock
	Paths    int     // callers of which it is known whether they hold it
	Others   []Place // calls under the lock
}

// Message describes the finding in one line.
func (s *Suggestion) Message() string {
	return fmt.Sprintf("%s is reached under %q in %d of %d paths; here, in %s, it is not", s.Function, s.Key, s.Under, s.Paths, s.Caller)
}

// Run loads the module of the packages, and returns the suggestions for the packages. Callers
// are counted in the whole module. Run blocks while the go command compiles the imports.
// An error means that something could not be loaded or does not compile.
func Run(ctx context.Context, opts Options) ([]Suggestion, error) {
	w, err := source.Load(ctx, opts.Dir, opts.BuildFlags, opts.Patterns)
	if err != nil {
		return nil, err
	}
	g := &graph{World: w, funcs: map[*types.Func]*function{}, sole: map[*types.Func]*types.Func{}}
	g.collect()
	g.hold()
	var out []Suggestion
	for _, f := range g.sorted() {
		if f.writes && len(f.locks) == 0 {
			out = append(out, g.odd(f)...)
		}
	}
	slices.SortFunc(out, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Function, b.Function))
	})
	return out, nil
}

// odd finds the callers of f without the lock, if at least two callers, and at least two thirds of
// them, have the lock.
func (g *graph) odd(f *function) []Suggestion {
	under := map[string][]*call{}
	var without []*call
	seen := map[*function]bool{}
	for _, c := range f.callers {
		if seen[c.from] || c.from == f || len(c.from.locks) == 0 && c.from.wraps {
			continue
		}
		seen[c.from] = true
		switch held := c.from.must; {
		case c.later || c.from.byHand || c.fresh:
		case len(held) > 0:
			for class := range held {
				under[class] = append(under[class], c)
			}
		case len(c.from.may) == 0 && !c.from.mayAny:
			without = append(without, c)
		}
	}
	best := ""
	for _, class := range slices.Sorted(maps.Keys(under)) {
		if best == "" || len(under[class]) > len(under[best]) {
			best = class
		}
	}
	with := len(under[best])
	paths := with + len(without)
	if with < 2 || len(without) == 0 || 3*with < 2*paths || !isOfKey(f, under[best]) {
		return nil
	}
	var others []Place
	for _, c := range under[best] {
		others = append(others, g.place(c.pos))
	}
	slices.SortFunc(others, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	var out []Suggestion
	for _, c := range without {
		at := g.place(c.pos)
		if g.Asked[at.File] {
			out = append(out, Suggestion{
				Place: at, Function: facts.Name(f.fn), Caller: facts.Name(c.from.fn), Key: under[best][0].from.must[best],
				Under: with, Paths: paths, Others: others,
			})
		}
	}
	return out
}

// isOfKey reports whether the write of f seems to belong to the key: its arguments contain a
// value that the key names. A function that takes a context writes to a store, and counts as
// well. A counter does not.
func isOfKey(f *function, under []*call) bool {
	return takesContext(f) || slices.ContainsFunc(under, func(c *call) bool { return c.keyed })
}

func (g *graph) place(pos token.Pos) Place {
	at := g.Fset.Position(pos)
	return Place{at.Filename, at.Line, at.Column}
}

// sorted returns the functions in the order of their positions.
func (g *graph) sorted() []*function {
	return slices.SortedFunc(maps.Values(g.funcs), func(a, b *function) int { return cmp.Compare(a.fn.Pos(), b.fn.Pos()) })
}
