package generator

import (
	"bytes"
	"go/build/constraint"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// OutputName is the name of the generated file for code that is in every build.
const OutputName = "lock_gen.go"

// Code that is only in some builds goes to files of its own: lock_gen_linux.go, lock_gen_test.go,
// lock_gen_external_test.go, lock_gen_linux_test.go.
const (
	outputStem   = "lock_gen"
	externalWord = "external"
)

func isOutputName(base string) bool {
	return base == OutputName || strings.HasPrefix(base, outputStem+"_") && filepath.Ext(base) == ".go"
}

// output is one generated file.
type output struct {
	path    string
	when    constraint.Expr // the builds that it is in
	wanted  bool            // code was generated for it
	old     []byte          // its present text, if lockgen wrote it
	content []byte          // the text that it should have
}

func (o *output) external() bool {
	return strings.HasPrefix(filepath.Base(o.path), outputStem+"_"+externalWord) && strings.HasSuffix(o.path, "_test.go")
}

// outputOf returns the output file for code that needs all these files: it is in the builds that
// have all of them.
func (p *pkg) outputOf(files ...*source) *output {
	var when constraint.Expr
	test := false
	for _, f := range files {
		when = both(when, f.when)
		test = test || f.inTest()
	}
	words := []string{outputStem}
	if p.external {
		words = append(words, externalWord)
	}
	if when != nil {
		words = append(words, slug(when))
	}
	if test {
		words = append(words, "test")
	}
	path := filepath.Join(p.dir, strings.Join(words, "_")+".go")
	o := p.outputs[path]
	if o == nil {
		o = &output{path: path}
		p.outputs[path] = o
	}
	o.when, o.wanted = when, true
	return o
}

// File is one generated file: as it is, and as it should be.
type File struct {
	Path    string // the absolute path
	Package string // the import path
	Old     []byte // nil if the file does not exist
	New     []byte // nil if the file should not exist
}

// Change says what must be done with a file.
type Change string

// The changes.
const (
	None   Change = "none"
	Create Change = "create"
	Update Change = "update"
	Delete Change = "delete"
)

// Change compares Old and New. Differences in line ends do not count, because a checkout may have
// changed them.
func (f File) Change() Change {
	switch {
	case f.New == nil && f.Old == nil, f.New != nil && f.Old != nil && bytes.Equal(bytes.ReplaceAll(f.Old, []byte("\r\n"), []byte("\n")), f.New):
		return None
	case f.New == nil:
		return Delete
	case f.Old == nil:
		return Create
	}
	return Update
}

// isOwn reports whether an existing file may be overwritten by lockgen. Either its header says so,
// wherever a merge conflict has moved it, or the file ends before the end of the header, in which
// case it contains nothing hand-written.
func isOwn(text []byte) bool {
	if strings.HasPrefix(templates.Header, strings.TrimSpace(string(text))) {
		return true
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if string(line) == templates.Header {
			return true
		}
		if bytes.HasPrefix(line, []byte("package ")) {
			return false
		}
	}
	return false
}

// result returns the package's generated files as they are and as they should be.
func (p *pkg) result() []File {
	var out []File
	for _, path := range sortedKeys(p.outputs) {
		if o := p.outputs[path]; o.old != nil || o.content != nil {
			out = append(out, File{Path: path, Package: p.path, Old: o.old, New: o.content})
		}
	}
	return out
}

// reportForeign reports hand-written files that have the name of a generated file.
func (p *pkg) reportForeign() {
	for path, o := range p.outputs { // the result is sorted later
		if !o.wanted || !slices.ContainsFunc(p.files, func(f *source) bool { return f.path == path }) {
			continue
		}
		base := filepath.Base(path)
		p.diagnostics = append(p.diagnostics, Diagnostic{
			File: path, Line: 1, Column: 1,
			Message: base + " was not written by lockgen and stays as it is",
			Hint:    "rename it, so that lockgen can write its own",
		})
	}
}
