package generator

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// Diagnostic is one mistake in the user's code.
type Diagnostic struct {
	File    string // the absolute path
	Line    int
	Column  int // in bytes, from 1
	Message string
	Hint    string // how to correct it; may be empty
}

// Text returns the message, and the hint in parentheses.
func (d Diagnostic) Text() string {
	if d.Hint == "" {
		return d.Message
	}
	return d.Message + " (" + d.Hint + ")"
}

func (d Diagnostic) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Text())
}

// position returns the position of pos according to the file's //line comments. If a comment names
// no column, the column is 1.
func (r *run) position(pos token.Pos) token.Position {
	at := r.fset.Position(pos)
	at.Column = max(at.Column, 1)
	return at
}

// report adds a diagnostic at pos; no file is generated for the package then.
func (p *pkg) report(pos token.Pos, hint, format string, args ...any) {
	at := p.run.position(pos)
	d := Diagnostic{
		File: at.Filename, Line: at.Line, Column: at.Column,
		Message: fmt.Sprintf(format, args...), Hint: hint,
	}
	p.diagnostics = append(p.diagnostics, d)
	if p.heard != nil {
		p.heard(pos, d)
	}
}

// reportIn reports problems in the text of a directive.
func (p *pkg) reportIn(d *directive, problems []problem) {
	for _, bad := range problems {
		p.report(d.posOf(bad.at), bad.hint, "%s", bad.message)
	}
}

// warnIn warns of problems in the text of a directive.
func (p *pkg) warnIn(d *directive, problems []problem) {
	for _, odd := range problems {
		p.warn(d.posOf(odd.at), odd.hint, "%s", odd.message)
	}
}

// warn adds a warning at pos, which stops nothing.
func (p *pkg) warn(pos token.Pos, hint, format string, args ...any) {
	at := p.run.position(pos)
	p.warnings = append(p.warnings, Diagnostic{
		File: at.Filename, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func sortDiagnostics(list []Diagnostic) []Diagnostic {
	slices.SortFunc(list, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message), cmp.Compare(a.Hint, b.Hint),
		)
	})
	return slices.Compact(list)
}

// problem is a mistake in a text whose position is not known yet. at is an offset in bytes from the
// start of that text.
type problem struct {
	at            int
	message, hint string
}
