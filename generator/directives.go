package generator

import (
	"go/ast"
	"go/token"
)

// Annotated is a declaration with directives, as a linter sees it: the file has been parsed, and
// function bodies are kept.
type Annotated struct {
	Name       *ast.Ident    // of the method or function
	Interface  *ast.TypeSpec // the interface that declares the method, if one does
	Directives []Directive   // in source order; only those whose key can be parsed
}

// Directive is one //lock: line.
type Directive struct {
	Lock
	Pos         token.Pos // of the comment
	Read, Write bool
	Parts       []Part // the key: literals and placeholders
}

// Part is a literal of a key or, if it has a path, a placeholder.
type Part struct {
	Literal string
	Path    []string // "order", "Customer", "ID"
	Each    bool     // the placeholder ends with ...: one key for each element
}

// Mistake is a diagnostic about a comment.
type Mistake struct {
	Pos     token.Pos
	Comment *ast.Comment
	Message string
	Hint    string // how to correct it; may be empty
	// Correction is the line that was meant, if the comment is a near miss.
	Correction string
}

// ReadDirectives returns the directives of one file, which must have been parsed with its comments,
// and the mistakes in comments that are directives or were meant to be. It needs no types and
// changes nothing.
func ReadDirectives(fset *token.FileSet, file *ast.File) ([]Annotated, []Mistake) {
	f := &source{path: fset.Position(file.FileStart).Filename, syntax: file}
	p := &pkg{run: &run{fset: fset}, files: []*source{f}}
	var wrong []Mistake
	p.heard = func(pos token.Pos, d Diagnostic) {
		wrong = append(wrong, mistake(file, pos, d))
	}
	p.scanFile(f)
	var out []Annotated
	for _, t := range p.targets {
		a := Annotated{Name: t.id, Interface: t.iface}
		for _, d := range t.directives {
			if len(d.key.parts) > 0 {
				a.Directives = append(a.Directives, p.directive(t, d))
			}
		}
		out = append(out, a)
	}
	return out, wrong
}

// directive converts d for a linter.
func (p *pkg) directive(t *target, d *directive) Directive {
	out := Directive{
		Lock: p.lock(t, d), Pos: d.pos,
		Read: d.Read, Write: d.Write,
	}
	for _, part := range d.key.parts {
		out.Parts = append(out.Parts, Part{Literal: part.literal, Path: part.path, Each: part.each})
	}
	return out
}

func mistake(file *ast.File, pos token.Pos, d Diagnostic) Mistake {
	m := Mistake{Pos: pos, Message: d.Message, Hint: d.Hint}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() <= pos && pos < c.End() {
				m.Comment = c
			}
		}
	}
	if m.Comment != nil && !isDirective(m.Comment.Text) && len(m.Comment.Text) > 2 && m.Comment.Text[1] == '/' && isNearMiss(m.Comment.Text[2:]) {
		m.Correction = corrected(m.Comment.Text[2:])
	}
	return m
}
