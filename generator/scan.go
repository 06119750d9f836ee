package generator

import (
	"go/ast"
	"go/token"
	"strings"
)

// target is a declaration with directives, as written: a method, a method of an interface, or a
// function.
type target struct {
	file       *source
	id         *ast.Ident
	doc        *ast.CommentGroup
	typ        *ast.FuncType
	recv       *ast.FieldList // of a method
	iface      *ast.TypeSpec  // of a method of an interface
	directives []*directive   // in source order
}

// owner returns the name of the type to which a target belongs, as the target spells it.
func (t *target) owner() string {
	if t.iface != nil {
		return t.iface.Name.Name
	}
	return baseName(t.recv)
}

// scan collects the directives and declarations of the package's files.
func (p *pkg) scan() {
	for _, f := range p.files {
		if f.syntax == nil {
			continue
		}
		p.diagnostics = append(p.diagnostics, f.parsed.diagnostics...)
		p.warnings = append(p.warnings, f.parsed.warnings...)
		for _, found := range f.parsed.targets {
			t := *found
			t.file = f
			p.targets = append(p.targets, &t)
		}
	}
	p.guardedBy = map[string]bool{}
	for _, t := range p.targets {
		if name := p.aliased(t.owner()); name != "" && !p.guardedBy[name] {
			p.guardedBy[name] = true
			p.guardedNames = append(p.guardedNames, name)
		}
	}
	if len(p.targets) > 0 {
		p.naming = newNaming(p)
	}
}

// scanFile finds the directives of a file, and comments that look like one. gofmt moves a directive
// to the end of the doc comment, and CommentGroup.Text drops it, so the comments are read one by
// one.
func (p *pkg) scanFile(f *source) {
	owners := commentOwners(f.syntax)
	annotated := map[*ast.Ident]*target{}
	before := len(p.targets)
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if !isDirective(c.Text) {
				p.scanNearMiss(c)
				continue
			}
			own := owners[group]
			if own.target == nil {
				p.reportMisplaced(f, c, own)
				continue
			}
			t := annotated[own.target.id]
			if t == nil {
				t = own.target
				t.file = f
				annotated[t.id] = t
				p.targets = append(p.targets, t)
			}
			d := p.readDirective(c)
			p.checkLookalikes(t, d)
			t.directives = append(t.directives, d)
		}
	}
	for _, t := range p.targets[before:] {
		p.checkSeveral(t)
	}
}

// isDirective follows the rule of gofmt: no space, and a lower-case letter or a digit after the
// colon.
func isDirective(text string) bool {
	rest, ok := strings.CutPrefix(text, string(directiveText))
	return ok && rest != "" && ('a' <= rest[0] && rest[0] <= 'z' || '0' <= rest[0] && rest[0] <= '9')
}

func (p *pkg) readDirective(c *ast.Comment) *directive {
	d, problems := parseDirective(c.Text[len(directiveText):])
	d.pos, d.start = c.Slash, c.Slash+token.Pos(len(directiveText))
	d.wrong = len(problems) > 0
	p.reportIn(d, problems)
	if it := d.items["max"]; it != nil && d.items["ttl"] == nil && !d.wrong && d.Max.Length() < DefaultTTL {
		p.warn(d.posOf(it.at), "give it a ttl below max, such as a third of it", "max=%s is shorter than the lease, which lasts %v unless lock.Options has another ttl", it.value, DefaultTTL)
	}
	return d
}

// owner describes the declaration to which a comment belongs.
type owner struct {
	what   string  // "a struct field", …
	target *target // nil if that can't be locked
}

func commentOwners(file *ast.File) map[*ast.CommentGroup]owner {
	owners := map[*ast.CommentGroup]owner{}
	own := func(what string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if _, known := owners[g]; g != nil && !known {
				owners[g] = owner{what: what}
			}
		}
	}
	own("the package clause", file.Doc)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Doc != nil {
				owners[n.Doc] = owner{target: &target{id: n.Name, doc: n.Doc, typ: n.Type, recv: n.Recv}}
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
				if len(f.Names) == 0 {
					own("an embedded interface", f.Doc, f.Comment)
				}
				own("a method of an interface without a name at package level", f.Doc, f.Comment)
			}
		case *ast.StructType:
			for _, f := range n.Fields.List {
				own("a struct field", f.Doc, f.Comment)
			}
		}
		return true
	})
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			ownMethods(owners, g)
		}
	}
	return owners
}

// ownMethods records the methods that the declaration of an interface lists. A comment after a
// method, on its line, counts, because gofmt leaves it there.
func ownMethods(owners map[*ast.CommentGroup]owner, decl *ast.GenDecl) {
	for _, s := range decl.Specs {
		spec, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		iface, ok := ast.Unparen(spec.Type).(*ast.InterfaceType)
		if !ok {
			continue
		}
		for _, f := range iface.Methods.List {
			typ, ok := f.Type.(*ast.FuncType)
			if !ok || len(f.Names) != 1 {
				continue
			}
			t := &target{id: f.Names[0], doc: f.Doc, typ: typ, iface: spec}
			for _, g := range []*ast.CommentGroup{f.Doc, f.Comment} {
				if g != nil {
					owners[g] = owner{target: t}
				}
			}
		}
	}
}

func (p *pkg) reportMisplaced(f *source, c *ast.Comment, own owner) {
	if own.what == "" {
		p.reportDetached(f, c)
		return
	}
	p.report(c.Slash, "it belongs in the comment of a method or function", "a directive on %s locks nothing", own.what)
}

// reportDetached reports a directive that belongs to no declaration.
func (p *pkg) reportDetached(f *source, c *ast.Comment) {
	var next ast.Decl
	for _, d := range f.syntax.Decls {
		if d.Pos() <= c.Slash && c.Slash < d.End() {
			p.report(c.Slash, "it belongs in the comment of a method or function", "a directive inside a declaration locks nothing")
			return
		}
		if fn, ok := d.(*ast.FuncDecl); ok && d.End() <= c.Slash && p.sameLine(d.End(), c.Slash) {
			p.report(c.Slash, "write it above "+fn.Name.Name, "a directive behind a %s locks nothing", methodOrFunction(fn))
			return
		}
		if d.Pos() > c.Slash {
			next = d
			break
		}
	}
	if fn, ok := next.(*ast.FuncDecl); ok {
		p.report(c.Slash, "remove the blank line between it and "+fn.Name.Name, "a directive that stands apart from the %s locks nothing", methodOrFunction(fn))
		return
	}
	p.report(c.Slash, "it belongs in the comment of a method or function", "a directive that stands on no method or function locks nothing")
}

func methodOrFunction(fn *ast.FuncDecl) string {
	if fn.Recv != nil {
		return "method"
	}
	return "function"
}

func (p *pkg) sameLine(a, b token.Pos) bool {
	return p.run.fset.PositionFor(a, false).Line == p.run.fset.PositionFor(b, false).Line
}

// stripBodies removes function bodies. The types of declarations do not depend on them, and a body
// may call a wrapper that is not generated yet.
func stripBodies(file *ast.File) {
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fn.Body = nil
		}
	}
}
