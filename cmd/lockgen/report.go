package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/lockgen/lockgen/generator"
)

// printDiff prints the change of a file. The name has slashes, as tools that apply diffs expect.
func (c *command) printDiff(name string, before, after []byte) {
	name = filepath.ToSlash(name)
	c.stdout.Write(diff.Diff(name, before, name, after))
}

// printText reports to a person. failed is the number of files that could not be written.
func (c *command) printText(res *generator.Result, changed []generator.File, failed int) {
	c.printDiagnostics(res.Diagnostics)
	for _, d := range res.Warnings {
		fmt.Fprintf(c.stderr, "%s:%d:%d: warning: %s\n", c.relative(d.File), d.Line, d.Column, d.Text())
	}
	for _, f := range changed {
		name := c.relative(f.Path)
		switch {
		case c.diff:
			c.printDiff(name, f.Old, f.New)
		case c.check:
			fmt.Fprintf(c.stderr, "%s: stale (%s)\n", name, staleness(f))
		case c.dry:
			fmt.Fprintf(c.stdout, "would %s %s\n", f.Change(), name)
		default:
			fmt.Fprintf(c.stdout, "%sd %s\n", f.Change(), name)
		}
	}
	if c.check && len(changed) > 0 {
		if c.files != "" { // the build system knows how it calls lockgen
			fmt.Fprintln(c.stderr, "run it without -check")
		} else {
			fmt.Fprintf(c.stderr, "run: go tool lockgen %s\n", strings.Join(c.packages(), " "))
		}
	}
	if res.Methods == 0 && len(res.Diagnostics) == 0 && len(changed)+failed == 0 {
		fmt.Fprintf(c.stderr, "lockgen: no //lock: directive in %s\n", plural(res.Packages, "package"))
	}
}

func (c *command) printDiagnostics(list []generator.Diagnostic) {
	for _, d := range list {
		fmt.Fprintf(c.stderr, "%s:%d:%d: %s\n", c.relative(d.File), d.Line, d.Column, d.Text())
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func staleness(f generator.File) string {
	switch f.Change() {
	case generator.Create:
		return "missing"
	case generator.Delete:
		return "the package has no directive any more"
	}
	return "differs from its directives"
}

func (c *command) packages() []string {
	if len(c.args) == 0 {
		return []string{"."}
	}
	return c.args
}

// relative returns path as seen from c.dir.
func (c *command) relative(path string) string {
	if rel, err := filepath.Rel(c.dir, path); err == nil {
		return rel
	}
	return path
}

type jsonFile struct {
	Path    string `json:"path"`
	Package string `json:"package"`
	Change  string `json:"change"`
	Error   string `json:"error,omitempty"` // why it could not be written
}

type jsonDiagnostic struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// printJSON reports to a tool. failed says why files could not be written, by path.
func (c *command) printJSON(res *generator.Result, failed map[string]error) error {
	out := struct {
		Packages    int              `json:"packages"`
		Methods     int              `json:"methods"`
		Files       []jsonFile       `json:"files"`
		Diagnostics []jsonDiagnostic `json:"diagnostics"`
		Warnings    []jsonDiagnostic `json:"warnings,omitempty"`
	}{Packages: res.Packages, Methods: res.Methods, Files: []jsonFile{}, Diagnostics: []jsonDiagnostic{}}
	for _, f := range res.Files {
		file := jsonFile{Path: c.relative(f.Path), Package: f.Package, Change: string(f.Change())}
		if err := failed[f.Path]; err != nil {
			file.Error = err.Error()
		}
		out.Files = append(out.Files, file)
	}
	for _, d := range res.Diagnostics {
		out.Diagnostics = append(out.Diagnostics, jsonDiagnostic{c.relative(d.File), d.Line, d.Column, d.Message, d.Hint})
	}
	for _, d := range res.Warnings {
		out.Warnings = append(out.Warnings, jsonDiagnostic{c.relative(d.File), d.Line, d.Column, d.Message, d.Hint})
	}
	return printIndented(c.stdout, out)
}
