package generator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// render turns the models into the files' bytes.
func (u *unit) render(files map[*output]*fileModel) {
	for o, f := range files {
		if len(u.pkg.diagnostics) > 0 {
			return
		}
		content, err := f.Render()
		if err != nil {
			u.failed(err.Error())
			return
		}
		u.contents[o] = content
	}
}

// verify type-checks the output together with its package. An error in the output is a bug of
// lockgen, and is reported instead of being written. An error elsewhere, in generated code or not,
// is a warning to the user. The first build that a file is in sets its contents, because all builds
// agree on them.
func (u *unit) verify() {
	if len(u.contents) == 0 || len(u.pkg.diagnostics) > 0 {
		return
	}
	files, ours := u.syntax(), map[string]bool{}
	for o, content := range u.contents {
		file, err := parser.ParseFile(u.pkg.run.fset, o.path, content, parser.SkipObjectResolution)
		if err != nil {
			u.failed(err.Error())
			return
		}
		files, ours[o.path] = append(files, file), true
	}
	u.checkOutput(files, ours)
	for o, content := range u.contents {
		if o.content == nil {
			o.content = content
		}
	}
}

// torn reports whether an external test imports a package that imports the package that it tests.
// The imported package has compiled types, and the test has types from source: go/types then
// reports correct code as wrong.
func (u *unit) torn() bool {
	if u.tested == nil {
		return false
	}
	seen := map[*types.Package]bool{u.tested.types: true}
	var leads func(p *types.Package) bool
	leads = func(p *types.Package) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		return p.Path() == u.tested.pkg.path || slices.ContainsFunc(p.Imports(), leads)
	}
	return slices.ContainsFunc(u.types.Imports(), leads)
}

func (u *unit) checkOutput(files []*ast.File, ours map[string]bool) {
	var qualifiers map[token.Pos]bool
	u.typeCheck(files, nil, func(e types.Error) {
		if qualifiers == nil {
			qualifiers = u.qualifiers()
		}
		at := u.pkg.run.position(e.Pos)
		switch {
		case e.Soft || strings.HasPrefix(e.Msg, "could not import") || u.unloaded(e.Pos, qualifiers[e.Pos]):
		case strings.HasPrefix(e.Msg, "cannot use ") && u.torn():
		case ours[at.Filename]:
			u.failed(at.String() + ": " + e.Msg)
		case strings.HasSuffix(e.Msg, "(missing comparable constraint)") && u.leftOut(): // the constraint may be in such an import
		default:
			u.pkg.warnings = append(u.pkg.warnings, Diagnostic{
				File: at.Filename, Line: at.Line, Column: at.Column, Message: strings.Join(strings.Fields(e.Msg), " "),
			})
		}
	})
}

// unloaded reports whether the name at pos may be an import that was left out. go/types names such
// an import by the last element of its path, and reports redis as undefined if the path ends in
// go-redis/v9.
func (u *unit) unloaded(pos token.Pos, qualifier bool) bool {
	for _, f := range u.files {
		if f.syntax == nil || pos < f.syntax.FileStart || pos > f.syntax.FileEnd {
			continue
		}
		return slices.ContainsFunc(f.imports(), func(s *ast.ImportSpec) bool {
			return (s.Name == nil && qualifier || s.Name != nil && s.Name.Name == ".") && u.imports.packages[importPath(s)] == nil
		})
	}
	return false
}

// leftOut reports whether an import was left out.
func (u *unit) leftOut() bool {
	return slices.ContainsFunc(u.files, func(f *source) bool {
		return slices.ContainsFunc(f.imports(), func(s *ast.ImportSpec) bool { return u.imports.packages[importPath(s)] == nil })
	})
}

// qualifiers returns the positions of names from which another name is selected.
func (u *unit) qualifiers() map[token.Pos]bool {
	out := map[token.Pos]bool{}
	for _, file := range u.syntax() {
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if _, ok := sel.X.(*ast.Ident); ok {
					out[sel.X.Pos()] = true
				}
			}
			return true
		})
	}
	return out
}

func (u *unit) failed(why string) {
	u.pkg.report(u.methods[0].id.Pos(), "this is a bug of lockgen: please report it with this method's signature",
		"the generated code would not compile: %s", why)
}
