package generator

import (
	"bytes"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// pkg is one package during the run: its files in all builds.
type pkg struct {
	run          *run
	name, path   string
	dir          string
	external     bool               // it is a package of external tests
	tested       *pkg               // the package that they test
	files        []*source          // by path
	partial      bool               // some files can't be read
	outputs      map[string]*output // by path
	index        index              // what the files declare
	targets      []*target          // the declarations with directives, in source order
	guardedBy    map[string]bool    // the types that have methods among the targets
	guardedNames []string           // the same, in source order
	naming       *naming
	units        []*unit
	diagnostics  []Diagnostic
	warnings     []Diagnostic
	heard        func(token.Pos, Diagnostic) // called for each diagnostic, unless nil
}

// source is one file of a package.
type source struct {
	path    string
	text    []byte    // nil if nothing in it needed to be kept
	syntax  *ast.File // nil if the package has no directive and the file no near miss
	mention mention
	listed  bool            // the go command lists it for the present build
	when    constraint.Expr // the builds that it is in; nil means all
	broken  bool            // it has a syntax error, and directives
	parsed  *parsed
}

// mention says what a file's text may contain, before the file is parsed.
type mention int

const (
	noMention   mention = iota
	nearMention         // text that resembles a directive
	directiveMention
)

var directiveText = []byte("//lock:")

// parse reads the packages' files, keeps the packages in which there is something to do, and parses
// as few of their files as possible.
func (r *run) parse(listed []*packages.Package) []*pkg {
	found := make([][]*pkg, len(listed))
	parallel(len(listed), func(i int) { found[i] = r.read(listed[i]) })
	return slices.Concat(found...)
}

// read reads the package that the go command lists, and the package of its external tests.
func (r *run) read(l *packages.Package) []*pkg {
	dir := folder(l)
	if dir == "" {
		return nil
	}
	found := r.readSources(l, dir)
	worst := noMention
	for _, f := range found.sources {
		worst = max(worst, f.mention)
	}
	if worst == noMention && len(found.old)+len(found.unread) == 0 {
		return nil
	}
	p := &pkg{run: r, name: l.Name, path: l.PkgPath, dir: dir, outputs: map[string]*output{}, diagnostics: found.unread}
	tests := &pkg{run: r, path: l.PkgPath + "_test", dir: dir, outputs: map[string]*output{}, external: true, tested: p}
	p.partial, tests.partial = len(found.unread) > 0, len(found.unread) > 0
	for _, f := range found.sources {
		in := p
		if worst == directiveMention || f.mention != noMention {
			if err := p.parseFile(f); err != nil {
				p.diagnostics = append(p.diagnostics, notRead(f.path, err))
				p.partial, tests.partial = true, true
				continue
			}
			if f.inTest() && strings.HasSuffix(f.syntax.Name.Name, "_test") {
				in = tests
			}
		}
		in.files = append(in.files, f)
	}
	for path, text := range found.old {
		o := &output{path: path, old: text}
		if o.external() {
			tests.outputs[path] = o
		} else {
			p.outputs[path] = o
		}
	}
	p.findName()
	tests.findName()
	return []*pkg{p, tests}
}

// folder returns the folder of a package's files.
func folder(l *packages.Package) string {
	files := slices.Concat(l.GoFiles, l.IgnoredFiles)
	switch {
	case l.Dir != "":
		return l.Dir
	case len(files) > 0:
		return filepath.Dir(files[0])
	}
	return ""
}

// findName takes the package's name from its files. If the package has just been renamed, the go
// command may still have the old name from the generated file. A file that this build leaves out
// may be of another package, for example of a program that is run by hand.
func (p *pkg) findName() {
	p.files = slices.DeleteFunc(p.files, func(f *source) bool { // remove files that have no package clause yet
		return f.syntax != nil && f.syntax.Name.Name == ""
	})
	var first *source
	for _, f := range p.files {
		if f.syntax != nil && (f.listed || f.inTest()) && (first == nil || first.inTest() && !f.inTest()) {
			first = f
		}
	}
	for _, f := range p.files {
		if first == nil && f.syntax != nil && !ignoresItself(f) {
			first = f
		}
	}
	if first == nil {
		return
	}
	p.name = first.syntax.Name.Name
	p.files = slices.DeleteFunc(p.files, func(f *source) bool {
		if f.syntax == nil || f.syntax.Name.Name == p.name {
			return false
		}
		if f.listed || f.inTest() || f.mention == directiveMention {
			p.report(f.syntax.Name.Pos(), "move one of them to a folder of its own", "package %s; %s says package %s", f.syntax.Name.Name, filepath.Base(first.path), p.name)
		}
		return !f.listed
	})
}

// ignoresItself reports whether the file is in no build, by Go's own convention.
func ignoresItself(f *source) bool { return f.when != nil && f.when.String() == "ignore" }

// nearText matches the lines that isNearMiss may accept, from its word on.
var nearText = regexp.MustCompile(`^(?:` + wordPattern + `)(?:[ \t]*(?:::|[:：;；=/\- \t])[ \t]*(?:(?i:` + itemPattern + `)\b|` + quotePattern + `|\r?$)|` +
	`[ \t]*\([ \t]*(?:(?i:` + itemPattern + `)[ \t]*[=:]|` + quotePattern + `)|\.(?i:key)=` + quotePattern + `)`)

// nearNeedles are texts that a near miss has at some offset of its word. A misspelling counts only
// with a colon.
var nearNeedles = []struct {
	text string
	at   int
}{{"ock", 1}, {"OCK", 1}, {"lcok:", 0}, {"lokc:", 0}, {"olck:", 0}, {"loc:", 0}, {"lok:", 0}, {"lck:", 0}, {"locl:", 0}}

// mentions looks for directives and similar text without parsing, because most files of most
// modules have neither.
func mentions(text []byte) mention {
	if bytes.Contains(text, directiveText) {
		return directiveMention
	}
	if bytes.Contains(text, []byte("//go:lock")) {
		return nearMention
	}
	for _, needle := range nearNeedles {
		for rest := text; ; {
			i := bytes.Index(rest, []byte(needle.text))
			if i < 0 {
				break
			}
			if i >= needle.at {
				line, _, _ := bytes.Cut(rest[i-needle.at:], []byte("\n"))
				if nearText.Match(line) {
					return nearMention
				}
			}
			rest = rest[i+1:]
		}
	}
	return noMention
}

// parsed is the content of a file. It is read once in a run, although the guess needs it too, and
// never changed: pkgs share the syntax.
type parsed struct {
	once    sync.Once
	syntax  *ast.File // without function bodies
	when    constraint.Expr
	problem *Diagnostic // the first syntax error
	err     error       // the file can't be read

	targets               []*target // without a file yet
	diagnostics, warnings []Diagnostic
}

// parseFile takes over the content of a file; scan does so with its directives. A syntax error
// stops the run only if the file has directives, because they may belong to code that the parser
// could not read. The error means that the file can't be read.
func (p *pkg) parseFile(f *source) error {
	known, _ := p.run.parsed.LoadOrStore(f.path, &parsed{})
	x := known.(*parsed)
	x.once.Do(func() { x.read(p.run, *f) })
	f.syntax, f.when, f.parsed = x.syntax, x.when, x
	switch {
	case x.problem == nil:
	case f.mention != directiveMention:
		p.warnings = append(p.warnings, *x.problem)
	default:
		f.broken = true
		bad := *x.problem
		bad.Hint = "a file with directives has to parse"
		p.diagnostics = append(p.diagnostics, bad)
	}
	return x.err
}

func (x *parsed) read(r *run, f source) {
	text, err := f.content()
	if err != nil {
		x.err = err
		return
	}
	f.syntax, err = parser.ParseFile(r.fset, f.path, text, parser.ParseComments|parser.SkipObjectResolution)
	x.syntax, x.when = f.syntax, constraintOf(&f, text)
	if list, ok := err.(scanner.ErrorList); ok {
		at := list[0].Pos
		x.problem = &Diagnostic{File: at.Filename, Line: at.Line, Column: at.Column, Message: "syntax error: " + list[0].Msg}
	}
	if f.mention != noMention {
		alone := &pkg{run: r}
		alone.scanFile(&f)
		x.targets, x.diagnostics, x.warnings = alone.targets, alone.diagnostics, alone.warnings
	}
	stripBodies(x.syntax)
}

func (s *source) imports() []*ast.ImportSpec {
	if s.syntax == nil {
		return nil
	}
	return s.syntax.Imports
}

// inTest reports whether the file is a test file.
func (s *source) inTest() bool { return strings.HasSuffix(s.path, "_test.go") }
