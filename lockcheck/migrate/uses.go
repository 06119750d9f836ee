package migrate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// use is a value of type *T, or T, and where it goes.
type use struct {
	unit  *source.Unit
	file  *ast.File
	expr  ast.Expr
	stack []ast.Node // outermost first, without expr
	t     *wrapped
	value bool  // a T itself
	from  *node // the variable or result from which it comes, or nil
	fresh bool  // &T{…} or new(T): never nil
	to    target
}

// goal is what the code does with a value.
type goal int

const (
	nothing   goal = iota // a field or an unguarded method of it, a comparison with nil, an assignment to it
	guarded               // an annotated method of it is called
	variable              // it goes to a node
	converted             // it becomes an interface that has an annotated method
	iface                 // it becomes an interface that has none
	elsewhere             // anything else; why says what
)

type target struct {
	goal goal
	to   *node
	why  string
	at   *ast.Ident // the method
	in   *ast.Ident // the function around it, if that holds the lock already
}

// flow finds what the units declare and use. It reports whether anything has a wrapper.
func (m *migration) flow() bool {
	m.valued, m.dynamic = map[token.Pos]bool{}, map[string]bool{}
	for _, u := range m.Units {
		for _, file := range u.Files {
			m.declare(u, file)
		}
	}
	for _, u := range m.Units {
		for _, file := range u.Files {
			if facts.IsGenerated(file) {
				continue
			}
			ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
				m.visit(u, file, n, stack)
				return true
			})
		}
	}
	found := m.interfaces()
	for _, t := range m.wraps {
		found = found || t != nil
	}
	return found || m.anyFunction()
}

// once reports whether a place is new. Several units may contain a file, with the same tree, so a
// place may come up again.
func (m *migration) once(what string, n ast.Node) bool {
	key := seenKey{what, n}
	known := m.seen[key]
	m.seen[key] = true
	return !known
}

type seenKey struct {
	what string
	node ast.Node
}

func (m *migration) visit(u *source.Unit, file *ast.File, n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.Ident:
		if fn, ok := u.Info.Uses[n].(*types.Func); ok && !isCallee(n, stack) {
			m.valued[fn.Origin().Pos()] = true
		}
	case *ast.TypeAssertExpr:
		m.assert(u, n.Type)
	case *ast.TypeSwitchStmt:
		for _, s := range n.Body.List {
			for _, e := range s.(*ast.CaseClause).List {
				m.assert(u, e)
			}
		}
	case *ast.AssignStmt:
		m.maker(u, file, n, stack)
	case *ast.ValueSpec:
		m.several(u, n)
	case *ast.SelectorExpr:
		m.selector(u, file, n)
	case *ast.CallExpr:
		m.results(u, n)
	}
	e, ok := n.(ast.Expr)
	if !ok || isName(n, stack) {
		return
	}
	if _, paren := e.(*ast.ParenExpr); paren {
		return
	}
	tv, ok := u.Info.Types[e]
	if !ok || !tv.IsValue() || tv.IsNil() {
		return
	}
	t, pointer := m.of(tv.Type)
	if t == nil || !m.once("use", e) {
		return
	}
	use := &use{unit: u, file: file, expr: e, stack: slices.Clone(stack), t: t, value: !pointer}
	use.from = m.from(u, e)
	use.fresh = isFresh(u, e)
	use.to = m.target(use)
	m.uses = append(m.uses, use)
}

// isName reports whether an identifier names a part of something else: x.name, {name: x}.
func isName(n ast.Node, stack []ast.Node) bool {
	if len(stack) == 0 {
		return false
	}
	switch p := stack[len(stack)-1].(type) {
	case *ast.SelectorExpr:
		return p.Sel == n
	case *ast.KeyValueExpr:
		_, id := n.(*ast.Ident)
		return p.Key == n && id
	}
	return false
}

func isCallee(id *ast.Ident, stack []ast.Node) bool {
	var e ast.Node = id
	for i := len(stack) - 1; i >= 0; i-- {
		switch p := stack[i].(type) {
		case *ast.SelectorExpr:
			if p.Sel != e {
				return false
			}
		case *ast.ParenExpr, *ast.IndexExpr, *ast.IndexListExpr:
		case *ast.CallExpr:
			return p.Fun == e
		default:
			return false
		}
		e = stack[i]
	}
	return false
}

// assert records the type of a type assertion. The compiler does not report an assertion if a
// method of that interface has another signature than the method of the value.
func (m *migration) assert(u *source.Unit, e ast.Expr) {
	if e == nil {
		return
	}
	tv := u.Info.Types[e]
	if !tv.IsType() {
		return
	}
	if t, _ := m.of(tv.Type); t != nil && t.asserted == nil {
		t.asserted = e
	}
	if i, ok := tv.Type.Underlying().(*types.Interface); ok {
		for method := range i.Methods() {
			m.dynamic[method.Name()] = true
		}
	}
}

// from returns the variable or the function from which the value of an expression comes.
func (m *migration) from(u *source.Unit, e ast.Expr) *node {
	switch e := e.(type) {
	case *ast.Ident:
		v, _ := u.Info.Uses[e].(*types.Var)
		return m.variable(v)
	case *ast.SelectorExpr:
		v, _ := u.Info.Uses[e.Sel].(*types.Var)
		return m.variable(v)
	case *ast.CallExpr:
		if fn := typeutil.StaticCallee(u.Info, e); fn != nil {
			return m.result(fn, 0)
		}
	}
	return nil
}

func isFresh(u *source.Unit, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		_, lit := ast.Unparen(e.X).(*ast.CompositeLit)
		return e.Op == token.AND && lit
	case *ast.CallExpr:
		id, ok := ast.Unparen(e.Fun).(*ast.Ident)
		if !ok {
			return false
		}
		b, ok := u.Info.Uses[id].(*types.Builtin)
		return ok && b.Name() == "new"
	}
	return false
}

// selector reports calls that wrapping a variable can't correct: a call of a method of an embedded
// value, and of a method expression.
func (m *migration) selector(u *source.Unit, file *ast.File, n *ast.SelectorExpr) {
	sel := u.Info.Selections[n]
	if sel == nil || m.isTest(file) || !m.Asked[m.path(file)] {
		return
	}
	fn, ok := sel.Obj().(*types.Func)
	if !ok {
		return
	}
	recv := fn.Signature().Recv()
	if recv == nil {
		return
	}
	t, _ := m.of(recv.Type())
	if t == nil || !t.methods[fn.Name()] || m.ignored(file, n.Sel.Pos()) {
		return
	}
	switch through, _ := m.of(sel.Recv()); {
	case sel.Kind() == types.MethodExpr && m.once("left", n):
		m.raw[m.place(n.Sel.Pos())] = true
		m.leave(n.Sel.Pos(), fmt.Sprintf("%s.%s is used as a function: use the method of a %s", t.name.Name(), fn.Name(), t.wrapper()))
	case sel.Kind() == types.MethodVal && through == nil && !isWrapperType(sel.Recv()) && m.once("left", n):
		m.raw[m.place(n.Sel.Pos())] = true
		m.leave(n.Sel.Pos(), fmt.Sprintf("%s.%s is called through a type that embeds it: embed a *%s", t.name.Name(), fn.Name(), t.wrapper()))
	}
}

// isWrapperType reports whether t is a generated wrapper. The value that it embeds has no wrapper.
func isWrapperType(t types.Type) bool {
	obj := typeName(t)
	if obj == nil || obj.Pkg() == nil {
		return false
	}
	for _, prefix := range []string{"New" + obj.Name(), "new" + upper(obj.Name())} {
		if fn, ok := obj.Pkg().Scope().Lookup(prefix).(*types.Func); ok && fn.Signature().Params().Len() == 2 && isLocker(fn.Signature().Params().At(1).Type()) {
			return true
		}
	}
	return false
}

// ignored reports whether a comment says that calls here need no lock.
func (m *migration) ignored(file *ast.File, pos token.Pos) bool {
	known, ok := m.ignores[file]
	if !ok {
		known = facts.Ignores(m.Fset, file)
		m.ignores[file] = known
	}
	line := m.Fset.Position(pos).Line
	return slices.ContainsFunc(known, func(ig facts.Ignore) bool {
		return ig.Check == "bypass" && ig.From <= line && line <= ig.To
	})
}
