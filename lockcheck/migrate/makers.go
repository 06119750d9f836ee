package migrate

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// maker is a call with several results, of which one goes to a node: x, err := NewT().
type maker struct {
	unit  *source.Unit
	file  *ast.File
	to    *node
	from  *node      // the result; nil if the function is not known here
	name  *ast.Ident // x
	check ast.Stmt   // the next statement, which checks err; nil if x can't be wrapped after it
}

// maker records an assignment of several values.
func (m *migration) maker(u *source.Unit, file *ast.File, n *ast.AssignStmt, stack []ast.Node) {
	if len(n.Rhs) != 1 || len(n.Lhs) < 2 || !m.once("maker", n) {
		return
	}
	for i, lhs := range n.Lhs {
		var to *node
		id, _ := ast.Unparen(lhs).(*ast.Ident)
		switch x := ast.Unparen(lhs).(type) {
		case *ast.Ident:
			obj := u.Info.Defs[x]
			if obj == nil {
				obj = u.Info.Uses[x]
			}
			v, _ := obj.(*types.Var)
			to = m.variable(v)
		case *ast.SelectorExpr:
			v, _ := u.Info.Uses[x.Sel].(*types.Var)
			to = m.variable(v)
		}
		if to == nil {
			continue
		}
		mk := &maker{unit: u, file: file, to: to, name: id}
		if call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr); ok {
			if fn := typeutil.StaticCallee(u.Info, call); fn != nil {
				mk.from = m.result(fn, i)
			}
		}
		if id != nil && u.Info.Defs[id] != nil && n.Tok == token.DEFINE {
			mk.check = m.checkAfter(u, n, stack, id)
		}
		m.makers = append(m.makers, mk)
	}
}

// several records var x, err = NewT(), which is never rewritten.
func (m *migration) several(u *source.Unit, n *ast.ValueSpec) {
	if len(n.Values) != 1 || len(n.Names) < 2 || !m.once("maker", n) {
		return
	}
	for _, id := range n.Names {
		v, _ := u.Info.Defs[id].(*types.Var)
		if to := m.variable(v); to != nil {
			m.makers = append(m.makers, &maker{unit: u, to: to, name: id})
		}
	}
}

// checkAfter returns the statement after the assignment if it checks one of the other results,
// and returns if that is an error: if err != nil { … } or require.NoError(t, err). Then x can be
// wrapped after it.
func (m *migration) checkAfter(u *source.Unit, n *ast.AssignStmt, stack []ast.Node, x *ast.Ident) ast.Stmt {
	var list []ast.Stmt
	switch p := stack[len(stack)-1].(type) {
	case *ast.BlockStmt:
		list = p.List
	case *ast.CaseClause:
		list = p.Body
	case *ast.CommClause:
		list = p.Body
	}
	at := slices.Index(list, ast.Stmt(n)) + 1
	if at == 0 || at == len(list) || !m.looksAt(u, list[at], n, x) || m.mentions(u, list[at], u.Info.Defs[x]) {
		return nil
	}
	rest := string(m.line(list[at].End()))
	if rest != "" && !strings.HasPrefix(rest, "//") {
		return nil
	}
	return list[at]
}

func (m *migration) looksAt(u *source.Unit, next ast.Stmt, n *ast.AssignStmt, x *ast.Ident) bool {
	isOther := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		if !ok || u.Info.Uses[id] == nil || id.Name == x.Name {
			return false
		}
		return slices.ContainsFunc(n.Lhs, func(l ast.Expr) bool {
			left, ok := l.(*ast.Ident)
			return ok && (u.Info.Defs[left] == u.Info.Uses[id] || u.Info.Uses[left] == u.Info.Uses[id])
		})
	}
	switch next := next.(type) {
	case *ast.IfStmt:
		cond, ok := ast.Unparen(next.Cond).(*ast.BinaryExpr)
		return ok && next.Init == nil && next.Else == nil && cond.Op == token.NEQ &&
			isOther(cond.X) && u.Info.Types[cond.Y].IsNil() && leaves(next.Body)
	case *ast.ExprStmt:
		call, ok := next.X.(*ast.CallExpr)
		return ok && strings.HasPrefix(types.ExprString(call.Fun), "require.") && slices.ContainsFunc(call.Args, isOther)
	}
	return false
}

// leaves reports whether a block ends with a statement that leaves the enclosing block.
func leaves(block *ast.BlockStmt) bool {
	if len(block.List) == 0 {
		return false
	}
	switch last := block.List[len(block.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		name := types.ExprString(call.Fun)
		name = name[strings.LastIndexByte(name, '.')+1:]
		return name == "panic" || name == "Exit" || name == "FailNow" || strings.HasPrefix(name, "Fatal")
	}
	return false
}

func (m *migration) mentions(u *source.Unit, n ast.Node, obj types.Object) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && u.Info.Uses[id] == obj {
			found = true
		}
		return !found
	})
	return found
}

// line returns the rest of the line after pos, without the space around it.
func (m *migration) line(pos token.Pos) []byte {
	at := m.Fset.PositionFor(pos, false)
	text := m.Texts[at.Filename][at.Offset:]
	for i, b := range text {
		if b == '\n' {
			text = text[:i]
			break
		}
	}
	return []byte(strings.TrimSpace(string(text)))
}
