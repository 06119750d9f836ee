package module

import (
	"cmp"
	"context"
	"fmt"
	"go/token"
	"os"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/lockgraph"
)

// Options say what to check. The zero value is the package in the current directory.
type Options struct {
	Dir        string   // where the go command runs; empty is the current directory
	Patterns   []string // as the go command takes them; none is "."
	BuildFlags []string // passed to the go command: "-tags=integration"
	Checks     []string // by name; none is all
}

// Place is a position in a file.
type Place struct {
	File         string // absolute
	Line, Column int    // from 1, the column in bytes
}

// Note says something about another place that a diagnostic is about.
type Note struct {
	Place
	Message string
}

// Edit replaces the bytes from Start to End of a file.
type Edit struct {
	File       string
	Start, End int
	New        string
}

// Fix is a change that mends what is wrong.
type Fix struct {
	Message string
	Edits   []Edit
}

// Diagnostic is one finding of one check.
type Diagnostic struct {
	Place
	Check   string
	Message string
	URL     string // the check's documentation
	Related []Note
	Fixes   []Fix
	ID      string // the same when lines move or the file is renamed
	Cause   string // what findings have in common that say the same, in whatever place

	within string // the declaration that it is in
}

// Result is what a run found.
type Result struct {
	Packages    int
	Diagnostics []Diagnostic // sorted by place
	Broken      []string     // packages that do not compile, and why; they are not checked

	graph *lockgraph.Graph
	roots map[string]bool // files of the packages that were asked for
}

// Check loads the packages and runs the checks. It needs code that compiles; what
// does not is left out and named. An error means that nothing could be loaded.
func Check(ctx context.Context, opts Options) (*Result, error) {
	pkgs, asked, err := load(ctx, opts)
	if err != nil {
		return nil, err
	}
	r := &run{opts: opts, closures: map[string]*facts.Closure{}, res: &Result{Packages: len(asked), roots: map[string]bool{}}}
	for _, p := range pkgs {
		if err := r.check(p, asked[p.PkgPath]); err != nil {
			return nil, err
		}
	}
	r.whole()
	slices.SortFunc(r.res.Diagnostics, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Check, b.Check), cmp.Compare(a.Message, b.Message),
		)
	})
	r.res.identify()
	return r.res, nil
}

// run is one call of Check.
type run struct {
	opts     Options
	closures map[string]*facts.Closure
	indexes  []*facts.Index
	res      *Result
}

func (r *run) wants(check string) bool {
	return len(r.opts.Checks) == 0 || slices.Contains(r.opts.Checks, check)
}

// check runs the analyzers over one package.
func (r *run) check(p *packages.Package, asked bool) error {
	if len(p.Errors) > 0 || p.Types == nil || p.IllTyped {
		if asked {
			r.res.Broken = append(r.res.Broken, fmt.Sprintf("%s: %s", p.PkgPath, whyBroken(p)))
		}
		return nil
	}
	if asked {
		for _, file := range p.GoFiles {
			r.res.roots[file] = true
		}
	}
	results := map[*analysis.Analyzer]any{}
	ix, err := facts.Analyzer.Run(r.pass(p, facts.Analyzer, results, false))
	if err != nil {
		return fmt.Errorf("%s: %w", p.PkgPath, err)
	}
	index := ix.(*facts.Index)
	index.Whole = true
	r.indexes = append(r.indexes, index)
	results[facts.Analyzer] = index
	for _, a := range lockcheck.Analyzers() {
		if !asked || !r.wants(a.Name) {
			continue
		}
		if _, err := a.Run(r.pass(p, a, results, true)); err != nil {
			return fmt.Errorf("%s: %s: %w", p.PkgPath, a.Name, err)
		}
	}
	return nil
}

// whyBroken is the first error of a package. That of the compiler, which the go
// command passes on, says no more than go/types and has no position.
func whyBroken(p *packages.Package) string {
	for _, e := range p.Errors {
		if e.Kind != packages.ListError {
			return e.Error()
		}
	}
	if len(p.Errors) > 0 {
		return p.Errors[0].Msg
	}
	return "something that it imports does not compile"
}

// pass is what an analyzer is given. Its facts are those of this run.
func (r *run) pass(p *packages.Package, a *analysis.Analyzer, results map[*analysis.Analyzer]any, report bool) *analysis.Pass {
	pass := &analysis.Pass{
		Analyzer: a, Fset: p.Fset, Files: p.Syntax, OtherFiles: p.OtherFiles, IgnoredFiles: p.IgnoredFiles,
		Pkg: p.Types, TypesInfo: p.TypesInfo, TypesSizes: p.TypesSizes, ResultOf: results, ReadFile: os.ReadFile,
		Report: func(d analysis.Diagnostic) {
			if report {
				r.add(p, a, d)
			}
		},
	}
	if p.Module != nil {
		pass.Module = &analysis.Module{Path: p.Module.Path, Version: p.Module.Version, GoVersion: p.Module.GoVersion}
	}
	facts.Serve(pass, r.closures)
	return pass
}

func (r *run) add(p *packages.Package, a *analysis.Analyzer, d analysis.Diagnostic) {
	fset := p.Fset
	out := Diagnostic{within: within(p.PkgPath, p.Syntax, d.Pos), Place: place(fset, d.Pos), Check: a.Name, Message: d.Message, URL: a.URL}
	for _, rel := range d.Related {
		out.Related = append(out.Related, Note{place(fset, rel.Pos), rel.Message})
	}
	for _, fix := range d.SuggestedFixes {
		f := Fix{Message: fix.Message}
		for _, e := range fix.TextEdits {
			start := fset.PositionFor(e.Pos, false)
			end := start
			if e.End.IsValid() {
				end = fset.PositionFor(e.End, false)
			}
			f.Edits = append(f.Edits, Edit{start.Filename, start.Offset, end.Offset, string(e.NewText)})
		}
		out.Fixes = append(out.Fixes, f)
	}
	r.res.Diagnostics = append(r.res.Diagnostics, out)
}

func place(fset *token.FileSet, pos token.Pos) Place {
	p := fset.Position(pos)
	return Place{p.Filename, p.Line, p.Column}
}

// whole finds what is wrong between packages.
func (r *run) whole() {
	var summaries []*facts.Summary
	for _, ix := range r.indexes {
		summaries = append(summaries, ix.Own)
	}
	r.res.graph = lockgraph.New(summaries)
	for _, a := range lockcheck.Analyzers() {
		find := map[string]func(*lockgraph.Graph) []lockgraph.Finding{
			"order": (*lockgraph.Graph).Order, "collisions": (*lockgraph.Graph).Collisions, "lostctx": (*lockgraph.Graph).Lost,
		}[a.Name]
		if find == nil || !r.wants(a.Name) {
			continue
		}
		for _, f := range find(r.res.graph) {
			r.finding(a, f)
		}
	}
}

// finding adds one that is in the packages that were asked for, and not ignored.
func (r *run) finding(a *analysis.Analyzer, f lockgraph.Finding) {
	at := slices.IndexFunc(f.Places, func(p facts.Position) bool { return r.res.roots[p.File] })
	if at < 0 {
		return
	}
	for _, p := range f.Places {
		for _, ix := range r.indexes {
			if ix.Ignored(a.Name, p) {
				return
			}
		}
	}
	d := Diagnostic{Place: Place(f.Places[at]), Check: a.Name, Message: f.Message, URL: a.URL}
	for _, note := range f.Notes {
		d.Related = append(d.Related, Note{Place(note.Pos), note.Text})
	}
	r.res.Diagnostics = append(r.res.Diagnostics, d)
}
