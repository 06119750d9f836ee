package migrate

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"strconv"
	"strings"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// locker is the expression of the Locker that a wrapper gets at some place.
type locker struct {
	text    string
	imports []string // what the file must import for it
	why     string   // why there is none, and what to do
}

const (
	memory     = generator.RuntimePath + "/backends/memlock"
	noLocker   = "no *lock.Locker is in scope: name one by -locker"
	manyLocker = "more than one *lock.Locker is in scope: name one by -locker"
)

// locker finds the Locker for a place.
func (m *migration) locker(u *source.Unit, file *ast.File, pos token.Pos) locker {
	if m.opts.Locker != "" {
		if l, ok := m.named(u, file, pos); ok {
			return l
		}
	}
	l := inScope(u, pos)
	if l.why != "" {
		if m.isTest(file) && l.why == noLocker {
			runtime, _ := m.qualifier(u, file, generator.RuntimePath, "lock")
			mem, _ := m.qualifier(u, file, memory, "memlock")
			return locker{text: runtime + "New(" + mem + "New(), nil)", imports: []string{generator.RuntimePath, memory}}
		}
		if m.opts.Locker != "" {
			l.why = m.opts.Locker + " is no *lock.Locker here, and " + strings.Replace(l.why, "name one by -locker", "wrap it by hand", 1)
		}
	}
	return l
}

// checkLocker refuses a -locker that is invalid everywhere.
func checkLocker(w *source.World, text string) error {
	if text == "" {
		return nil
	}
	pkg, name := split(text)
	e, err := parser.ParseExpr(name)
	if err != nil {
		return fmt.Errorf("-locker %s: no Go expression: write locker, app.Locker or example.com/shop/app.Locker", text)
	}
	if pkg == "" {
		return nil
	}
	p, err := w.Package(pkg)
	if err != nil {
		return fmt.Errorf("-locker %s: package %s can't be loaded: %w", text, pkg, err)
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil // a call or a field is checked at each place
	}
	if obj := p.Scope().Lookup(id.Name); obj == nil || !obj.Exported() || !isLocker(obj.Type()) {
		return fmt.Errorf("-locker %s: package %s exports no %s of type *lock.Locker", text, pkg, id.Name)
	}
	return nil
}

// split separates the import path from the name in "example.com/shop/app.Locker". Without a slash
// there is no path.
func split(text string) (pkg, name string) {
	slash := strings.LastIndexByte(text, '/')
	dot := strings.IndexByte(text[slash+1:], '.')
	if slash < 0 || dot < 0 {
		return "", text
	}
	return text[:slash+1+dot], text[slash+2+dot:]
}

// named returns the expression of -locker, if it is a Locker at pos.
func (m *migration) named(u *source.Unit, file *ast.File, pos token.Pos) (locker, bool) {
	from, text := split(m.opts.Locker)
	if from == "" {
		e, err := parser.ParseExpr(text)
		if err != nil {
			return locker{}, false
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
		if types.CheckExpr(m.Fset, u.Pkg, pos, e, info) != nil || !isLocker(info.TypeOf(e)) {
			return locker{}, false
		}
		return locker{text: text}, true
	}
	if u.Listed.PkgPath == from {
		return locker{text: text}, true
	}
	name, imported := m.qualifier(u, file, from, path.Base(from))
	if imported {
		return locker{text: name + text}, true
	}
	for _, other := range m.Units {
		if other.Listed.ID == from {
			if source.Imports(other.Listed, u.Listed.PkgPath) {
				return locker{}, false // it would import itself
			}
			name = other.Pkg.Name() + "."
		}
	}
	return locker{text: name + text, imports: []string{from}}, true
}

// qualifier returns the text before a name of a package in a file: "svc.", or "" in the package
// itself. It also reports whether the file imports the package.
func (m *migration) qualifier(u *source.Unit, file *ast.File, pkg, name string) (prefix string, imported bool) {
	if u.Listed.PkgPath == pkg {
		return "", true
	}
	for _, spec := range file.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p != pkg || spec.Name != nil && spec.Name.Name == "_" {
			continue
		}
		if spec.Name != nil && spec.Name.Name == "." {
			return "", true
		}
		if spec.Name != nil {
			return spec.Name.Name + ".", true
		}
		if obj, ok := u.Info.Implicits[spec].(*types.PkgName); ok {
			return obj.Name() + ".", true
		}
	}
	return name + ".", false
}

// inScope returns the only Locker in scope. It looks first in the innermost scope that has one,
// then at the fields of the receiver, then at the variables of the package.
func inScope(u *source.Unit, pos token.Pos) locker {
	scope := u.Pkg.Scope().Innermost(pos)
	for s := scope; s != nil && s != u.Pkg.Scope(); s = s.Parent() {
		if l := oneOf(s, pos); l.why != noLocker {
			return l
		}
	}
	if l := ofReceiver(u, pos); l.why != noLocker {
		return l
	}
	return oneOf(u.Pkg.Scope(), token.NoPos)
}

func oneOf(s *types.Scope, before token.Pos) locker {
	l := locker{why: noLocker}
	for _, name := range s.Names() {
		v, ok := s.Lookup(name).(*types.Var)
		if !ok || !isLocker(v.Type()) || name == "_" || before.IsValid() && v.Pos() >= before {
			continue
		}
		if l.text != "" {
			return locker{why: manyLocker}
		}
		l = locker{text: name}
	}
	return l
}

// ofReceiver returns the Locker in a field of the receiver of the method around pos.
func ofReceiver(u *source.Unit, pos token.Pos) locker {
	l := locker{why: noLocker}
	for _, file := range u.Files {
		if pos < file.FileStart || file.FileEnd <= pos {
			continue
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || pos < decl.Pos() || decl.End() <= pos || decl.Recv == nil || len(decl.Recv.List) != 1 || len(decl.Recv.List[0].Names) != 1 {
				continue
			}
			recv, _ := u.Info.Defs[decl.Recv.List[0].Names[0]].(*types.Var)
			if recv == nil || recv.Name() == "_" {
				return l
			}
			return fieldOf(recv)
		}
	}
	return l
}

func fieldOf(recv *types.Var) locker {
	l := locker{why: noLocker}
	t := recv.Type()
	if ptr, ok := types.Unalias(t).(*types.Pointer); ok {
		t = ptr.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return l
	}
	for f := range s.Fields() {
		if !isLocker(f.Type()) {
			continue
		}
		if l.text != "" {
			return locker{why: manyLocker}
		}
		l = locker{text: recv.Name() + "." + f.Name()}
	}
	return l
}
