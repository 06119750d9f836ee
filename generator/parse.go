package generator

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/build/constraint"
	"go/parser"
	"go/scanner"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/lockgen/lockgen/templates"
)

// pkg is one package on its way through the run.
type pkg struct {
	run         *run
	name, path  string
	output      string // where its generated file is or would be
	old         []byte // that file now, if it is ours
	foreign     bool   // a file of that name is there and is not ours
	files       []*source
	others      []*source // tests, and what build constraints exclude
	methods     []*method // that have a directive, in source order
	diagnostics []Diagnostic

	types      *types.Package // from here on: nil where there is nothing to generate
	info       *types.Info
	typeErrors []types.Error
	model      *templates.File
	content    []byte // the generated file as it should be
}

// source is one file of a package.
type source struct {
	path        string
	text        []byte
	syntax      *ast.File // nil where the package has no directive and the file no near miss
	mention     mention
	broken      bool // it has a syntax error, and directives
	constrained bool // belongs to some platforms or tags only
}

// mention says what a file's text may have in it, before it is parsed.
type mention int

const (
	noMention   mention = iota
	nearMention         // something like a directive
	directiveMention
)

var directiveText = []byte("//lock:")

// parse reads the packages' files, keeps the packages in which there is
// something to do, and parses as little of these as that takes.
func (r *run) parse(listed []*packages.Package) []*pkg {
	var out []*pkg
	for _, l := range listed {
		if len(l.GoFiles)+len(l.IgnoredFiles) == 0 {
			continue
		}
		p := r.read(l)
		worst := noMention
		for _, f := range append(slices.Clone(p.files), p.others...) {
			worst = max(worst, f.mention)
		}
		if worst == noMention && p.old == nil {
			continue
		}
		for _, f := range p.files {
			if worst == directiveMention || f.mention != noMention {
				p.parseFile(f)
			}
		}
		for _, f := range p.others {
			if worst == directiveMention || f.mention != noMention {
				f.syntax, _ = parser.ParseFile(r.fset, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
			}
		}
		p.findName()
		out = append(out, p)
	}
	return out
}

// findName takes the package's name from its files: where the package has just
// been renamed, the go command may have it from the generated file.
func (p *pkg) findName() {
	var first *source
	for _, f := range p.files {
		if f.syntax == nil {
			continue
		}
		if first == nil {
			first, p.name = f, f.syntax.Name.Name
		}
		if f.syntax.Name.Name != p.name {
			p.report(f.syntax.Name.Pos(), "", "package %s; %s says package %s", f.syntax.Name.Name, filepath.Base(first.path), p.name)
		}
	}
}

func (r *run) read(l *packages.Package) *pkg {
	dir := l.Dir
	if dir == "" {
		dir = filepath.Dir(slices.Concat(l.GoFiles, l.IgnoredFiles)[0])
	}
	p := &pkg{run: r, name: l.Name, path: l.PkgPath, output: filepath.Join(dir, OutputName)}
	if old, ok := readIfThere(p.output); ok {
		if p.foreign = !isOwn(old); !p.foreign {
			p.old = old
		}
	}
	p.files = p.readSources(l.GoFiles)
	p.others = p.readSources(slices.Concat(l.IgnoredFiles, testFiles(dir)))
	return p
}

// readSources reads Go files, our generated one left out. A file that has
// vanished since it was listed is no file.
func (p *pkg) readSources(paths []string) []*source {
	var out []*source
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if filepath.Ext(path) != ".go" || filepath.Base(path) == OutputName && !p.foreign {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f := &source{path: path, text: text, mention: mentions(text)}
		f.constrained = f.mention == directiveMention && isConstrained(path, text)
		out = append(out, f)
	}
	return out
}

var nearText = regexp.MustCompile(`^(?i:lock)(?i:s|gen|ed)?[ \t]*[:\- \t][ \t]*(?:(?i:` + itemPattern + `)\b|["` + "`" + `]|\r?$)`)

// mentions looks for directives and what resembles them without parsing: most
// files of most modules have neither.
func mentions(text []byte) mention {
	if bytes.Contains(text, directiveText) {
		return directiveMention
	}
	for _, needle := range [][]byte{[]byte("ock"), []byte("OCK")} {
		for rest := text; ; {
			i := bytes.Index(rest, needle)
			if i < 0 {
				break
			}
			if i > 0 {
				line, _, _ := bytes.Cut(rest[i-1:], []byte("\n"))
				if nearText.Match(line) {
					return nearMention
				}
			}
			rest = rest[i+len(needle):]
		}
	}
	return noMention
}

// isConstrained reports whether the file is left out of some builds.
func isConstrained(path string, text []byte) bool {
	// No platform at all: whatever a _GOOS or _GOARCH suffix names, it differs.
	nowhere := build.Context{GOOS: "none", GOARCH: "none", Compiler: "gc"}
	nowhere.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	if ok, err := nowhere.MatchFile(filepath.Dir(path), filepath.Base(path)); err == nil && !ok {
		return true
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if constraint.IsGoBuild(string(line)) {
			return true
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			break
		}
	}
	return false
}

// parseFile parses one file. A syntax error matters only where directives are:
// they may stand on what the parser could not make out.
func (p *pkg) parseFile(f *source) {
	syntax, err := parser.ParseFile(p.run.fset, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
	f.syntax = syntax
	if list, ok := err.(scanner.ErrorList); ok && f.mention == directiveMention {
		f.broken = true
		first := list[0]
		p.diagnostics = append(p.diagnostics, Diagnostic{
			File: first.Pos.Filename, Line: first.Pos.Line, Column: first.Pos.Column,
			Message: "syntax error: " + first.Msg,
			Hint:    "a file with directives has to parse",
		})
	}
}

func (s *source) imports() []*ast.ImportSpec {
	if s.syntax == nil {
		return nil
	}
	return s.syntax.Imports
}

// inTest reports whether the file is one of package tests.
func (s *source) inTest() bool { return strings.HasSuffix(s.path, "_test.go") }
