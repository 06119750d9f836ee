package module

import (
	"cmp"
	"context"
	"fmt"
	"go/token"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/lockgraph"
)

// Options say what to check. The zero value is the package in the current directory.
type Options struct {
	Dir        string   // where the go command runs; empty means the current directory
	Patterns   []string // as for the go command; none means "."
	BuildFlags []string // passed to the go command: "-tags=integration"
	Checks     []string // by name; none means all
}

// Place is a position in a file.
type Place struct {
	File         string // the absolute path
	Line, Column int    // from 1, the column in bytes
}

// Note is a remark on another place that a diagnostic is about.
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

// Fix is a change that corrects a mistake.
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
	Cause   string // the same for findings with the same message in other places

	within string // the declaration around the place
}

// Result is the result of a run.
type Result struct {
	Packages    int
	Diagnostics []Diagnostic // sorted by place
	Broken      []string     // packages that do not compile, and why; they are not checked

	graph *lockgraph.Graph
	roots map[string]bool // files of the packages that were asked for
}

// Check loads the packages and runs the checks. Packages that do not compile are not
// checked, and are listed in Broken. An error means that nothing could be loaded.
func Check(ctx context.Context, opts Options) (*Result, error) {
	cache := newCache(ctx, opts)
	pkgs, asked, err := list(ctx, opts, cache)
	if err != nil {
		return nil, err
	}
	r := &run{opts: opts, asked: asked, pkgs: pkgs, cache: cache, entries: map[string]*entry{}, res: &Result{Packages: len(asked), roots: map[string]bool{}}}
	if err := r.each(ctx); err != nil {
		return nil, err
	}
	r.collect()
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
	opts   Options
	asked  map[string]bool
	pkgs   []*packages.Package // each package after its imports
	cache  *cache
	loader *loader
	res    *Result

	mu      sync.Mutex        // guards what follows
	entries map[string]*entry // by import path
	err     error
}

func (r *run) wants(check string) bool {
	return len(r.opts.Checks) == 0 || slices.Contains(r.opts.Checks, check)
}

// each gets the entry of each package from the cache, or runs the checks over the package. It
// runs as many at a time as there are processors.
func (r *run) each(ctx context.Context) error {
	var changed []*packages.Package
	for _, p := range r.pkgs {
		e := &entry{}
		if r.cache.get(r.cache.key(p), e) {
			r.entries[p.PkgPath] = e
		} else if len(p.GoFiles) > 0 {
			changed = append(changed, p)
		}
	}
	r.loader = newLoader(r.opts, r.cache)
	if err := r.loader.exported(ctx, changed); err != nil {
		return err
	}
	done := map[*packages.Package]chan struct{}{}
	for _, p := range changed {
		done[p] = make(chan struct{})
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, p := range changed {
		all.Go(func() {
			defer close(done[p])
			for _, imp := range p.Imports {
				if ready := done[imp]; ready != nil {
					<-ready
				}
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			r.check(p)
		})
	}
	all.Wait()
	r.cache.trim()
	return r.err
}

// check runs the analyzers over one package.
func (r *run) check(p *packages.Package) {
	if len(p.Errors) == 0 {
		r.loader.source(p)
	}
	defer func() { p.Syntax, p.TypesInfo = nil, nil }()
	if len(p.Errors) > 0 {
		return
	}
	e := &entry{}
	if err := r.analyze(p, e); err != nil {
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		return
	}
	r.cache.put(r.cache.key(p), e)
	r.mu.Lock()
	r.entries[p.PkgPath] = e
	r.mu.Unlock()
}

func (r *run) analyze(p *packages.Package, e *entry) error {
	closures := map[string]*facts.Closure{}
	for _, imp := range p.Imports {
		closures[imp.PkgPath] = r.closure(imp)
	}
	results := map[*analysis.Analyzer]any{}
	ix, err := facts.Analyzer.Run(r.pass(p, facts.Analyzer, results, closures, e))
	if err != nil {
		return fmt.Errorf("%s: %w", p.PkgPath, err)
	}
	index := ix.(*facts.Index)
	index.Whole = true
	results[facts.Analyzer] = index
	e.Summary = index.Own
	for _, a := range lockcheck.Analyzers() {
		if _, err := a.Run(r.pass(p, a, results, closures, e)); err != nil {
			return fmt.Errorf("%s: %s: %w", p.PkgPath, a.Name, err)
		}
	}
	return nil
}

// closure returns the summaries of a package and of all its imports.
func (r *run) closure(p *packages.Package) *facts.Closure {
	c := &facts.Closure{}
	seen := map[*packages.Package]bool{}
	var visit func(p *packages.Package)
	visit = func(p *packages.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, path := range sortedKeys(p.Imports) {
			visit(p.Imports[path])
		}
		if e := r.entries[p.PkgPath]; e != nil && !e.Summary.Empty() {
			c.Summaries = append(c.Summaries, e.Summary)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	visit(p)
	slices.SortFunc(c.Summaries, func(a, b *facts.Summary) int { return cmp.Compare(a.Path, b.Path) })
	return c
}

// collect collects the findings in the packages that were asked for.
func (r *run) collect() {
	for _, p := range r.pkgs {
		if !r.asked[p.PkgPath] {
			continue
		}
		for _, file := range p.GoFiles {
			r.res.roots[file] = true
		}
		e := r.entries[p.PkgPath]
		if e == nil && len(p.GoFiles) > 0 {
			r.res.Broken = append(r.res.Broken, fmt.Sprintf("%s: %s", p.PkgPath, whyBroken(p)))
		}
		if e == nil {
			continue
		}
		for i, d := range e.Diagnostics {
			if r.wants(d.Check) {
				d.within = e.Within[i]
				r.res.Diagnostics = append(r.res.Diagnostics, d)
			}
		}
	}
}

// whyBroken returns the first error of a package or of its imports.
func whyBroken(p *packages.Package) string {
	for _, imp := range p.Imports {
		if len(imp.Errors) > 0 {
			return "something that it imports does not compile"
		}
	}
	if len(p.Errors) > 0 && p.Errors[0].Pos != "" {
		return p.Errors[0].Error()
	}
	if len(p.Errors) > 0 {
		return p.Errors[0].Msg
	}
	return "something that it imports does not compile"
}

// pass returns the Pass for an analyzer. Its facts are those of this run, and its reports go to
// the entry.
func (r *run) pass(p *packages.Package, a *analysis.Analyzer, results map[*analysis.Analyzer]any, closures map[string]*facts.Closure, e *entry) *analysis.Pass {
	pass := &analysis.Pass{
		Analyzer: a, Fset: p.Fset, Files: p.Syntax, OtherFiles: p.OtherFiles, IgnoredFiles: p.IgnoredFiles,
		Pkg: p.Types, TypesInfo: p.TypesInfo, TypesSizes: p.TypesSizes, ResultOf: results, ReadFile: os.ReadFile,
		Report: func(d analysis.Diagnostic) {
			e.Diagnostics = append(e.Diagnostics, diagnostic(p.Fset, a, d))
			e.Within = append(e.Within, within(p.PkgPath, p.Syntax, d.Pos))
		},
	}
	if p.Module != nil {
		pass.Module = &analysis.Module{Path: p.Module.Path, Version: p.Module.Version, GoVersion: p.Module.GoVersion}
	}
	facts.Serve(pass, closures)
	return pass
}

func diagnostic(fset *token.FileSet, a *analysis.Analyzer, d analysis.Diagnostic) Diagnostic {
	out := Diagnostic{Place: place(fset, d.Pos), Check: a.Name, Message: d.Message, URL: a.URL}
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
	return out
}

func place(fset *token.FileSet, pos token.Pos) Place {
	p := fset.Position(pos)
	return Place{p.Filename, p.Line, p.Column}
}

// whole finds mistakes between packages.
func (r *run) whole() {
	var summaries []*facts.Summary
	for _, p := range r.pkgs {
		if e := r.entries[p.PkgPath]; e != nil {
			summaries = append(summaries, e.Summary)
		}
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

// finding adds a finding if it is in a package that was asked for, and is not ignored.
func (r *run) finding(a *analysis.Analyzer, f lockgraph.Finding) {
	at := slices.IndexFunc(f.Places, func(p facts.Position) bool { return r.res.roots[p.File] })
	if at < 0 {
		return
	}
	for _, p := range f.Places {
		if facts.Ignored(r.res.graph.Summaries, a.Name, p) {
			return
		}
	}
	d := Diagnostic{Place: Place(f.Places[at]), Check: a.Name, Message: f.Message, URL: a.URL}
	for _, note := range f.Notes {
		d.Related = append(d.Related, Note{Place(note.Pos), note.Text})
	}
	r.res.Diagnostics = append(r.res.Diagnostics, d)
}
