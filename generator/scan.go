package generator

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// method is one annotated method.
type method struct {
	pkg        *pkg
	file       *source
	decl       *ast.FuncDecl
	directives []*directive // in source order

	fn        *types.Func      // nil where go/types could not make it out
	recv      *types.TypeName  // the guarded type
	typeNames []string         // of the receiver's type parameters, blank ones named
	locks     []templates.Lock // one for each directive
	keys      []*keyed         // and what its key names
}

// name is what the user calls the method: "SeckillService.CreateVoucherOrder".
func (m *method) name() string { return m.recv.Name() + "." + m.fn.Name() }

// exported reports whether other packages can name the method.
func (m *method) exported() bool { return m.recv.Exported() && m.fn.Exported() }

// scan finds the directives of the package and what looks like one. gofmt
// moves a directive to the end of the doc comment and CommentGroup.Text drops
// it, so the comments are read one by one.
func (p *pkg) scan() {
	for _, f := range p.files {
		if f.syntax == nil {
			continue
		}
		if f.mention != noMention {
			p.scanFile(f)
		}
		stripBodies(f.syntax)
	}
	for _, f := range p.others {
		if f.syntax != nil && f.mention == directiveMention {
			p.scanOther(f)
		}
	}
	if p.foreign && len(p.methods) > 0 {
		p.diagnostics = append(p.diagnostics, Diagnostic{
			File: p.output, Line: 1, Column: 1,
			Message: OutputName + " was not written by lockgen and stays as it is",
			Hint:    "rename it, so that lockgen can write its own",
		})
	}
}

func (p *pkg) scanFile(f *source) {
	owners := commentOwners(f.syntax)
	annotated := map[*ast.FuncDecl]*method{}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if !isDirective(c.Text) {
				p.scanNearMiss(c)
				continue
			}
			own := owners[group]
			if own.decl == nil || own.decl.Recv == nil {
				p.reportMisplaced(f, c, own)
				continue
			}
			m := annotated[own.decl]
			if m == nil {
				m = &method{pkg: p, file: f, decl: own.decl}
				annotated[own.decl] = m
				p.methods = append(p.methods, m)
			}
			m.directives = append(m.directives, p.readDirective(c))
			if f.constrained {
				p.report(c.Slash, "move the method to a file that belongs to every build", "a directive in a file with a build constraint is not yet supported")
			}
		}
	}
}

// isDirective follows the rule of gofmt: no space, and a small letter or digit
// after the colon.
func isDirective(text string) bool {
	rest, ok := strings.CutPrefix(text, string(directiveText))
	return ok && rest != "" && ('a' <= rest[0] && rest[0] <= 'z' || '0' <= rest[0] && rest[0] <= '9')
}

func (p *pkg) readDirective(c *ast.Comment) *directive {
	d, problems := parseDirective(c.Text[len(directiveText):])
	d.pos, d.start = c.Slash, c.Slash+token.Pos(len(directiveText))
	for _, bad := range problems {
		p.report(d.posOf(bad.at), bad.hint, "%s", bad.message)
	}
	return d
}

// owner says what a comment stands on.
type owner struct {
	what string        // "a function", "a struct field", …
	decl *ast.FuncDecl // if that is a function or method
}

func commentOwners(file *ast.File) map[*ast.CommentGroup]owner {
	owners := map[*ast.CommentGroup]owner{}
	own := func(what string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				owners[g] = owner{what: what}
			}
		}
	}
	own("the package clause", file.Doc)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Doc != nil {
				owners[n.Doc] = owner{what: "a function", decl: n}
			}
		case *ast.GenDecl:
			own("a "+n.Tok.String()+" declaration", n.Doc)
		case *ast.TypeSpec:
			own("a type", n.Doc, n.Comment)
		case *ast.ValueSpec:
			own("a variable or constant", n.Doc, n.Comment)
		case *ast.ImportSpec:
			own("an import", n.Doc, n.Comment)
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				own("an interface method", f.Doc, f.Comment)
			}
		case *ast.StructType:
			for _, f := range n.Fields.List {
				own("a struct field", f.Doc, f.Comment)
			}
		}
		return true
	})
	return owners
}

func (p *pkg) reportMisplaced(f *source, c *ast.Comment, own owner) {
	switch {
	case own.decl != nil, own.what == "an interface method":
		p.report(c.Slash, "annotate a method of a struct", "a directive on %s is not yet supported", own.what)
	case own.what != "":
		p.report(c.Slash, "it belongs in the comment of a method", "a directive on %s locks nothing", own.what)
	default:
		p.reportDetached(f, c)
	}
}

// reportDetached reports a directive that stands on nothing.
func (p *pkg) reportDetached(f *source, c *ast.Comment) {
	var next ast.Decl
	for _, d := range f.syntax.Decls {
		if d.Pos() <= c.Slash && c.Slash < d.End() {
			p.report(c.Slash, "it belongs in the comment of a method", "a directive inside a declaration locks nothing")
			return
		}
		if d.Pos() > c.Slash {
			next = d
			break
		}
	}
	if fn, ok := next.(*ast.FuncDecl); ok && fn.Recv != nil {
		p.report(c.Slash, "remove the blank line between it and "+fn.Name.Name, "a directive that stands apart from the method locks nothing")
		return
	}
	p.report(c.Slash, "it belongs in the comment of a method", "a directive that stands on no method locks nothing")
}

// scanOther reports directives in files that this run does not generate from.
func (p *pkg) scanOther(f *source) {
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			switch {
			case !isDirective(c.Text):
			case f.inTest():
				p.report(c.Slash, "", "a directive in a test file is not yet supported")
			default:
				p.report(c.Slash, "move the method to a file that belongs to every build", "a directive in a file with a build constraint is not yet supported")
			}
		}
	}
}

// stripBodies drops what the types of declarations do not depend on: a body
// that calls the wrapper which is yet to be generated breaks nothing.
func stripBodies(file *ast.File) {
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fn.Body = nil
		}
	}
}
