package migrate

import (
	"fmt"
	"go/ast"
	"go/types"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
)

// anyFunction reports whether a function with a wrapper is used.
func (m *migration) anyFunction() bool {
	for _, u := range m.Units {
		for _, obj := range u.Info.Uses {
			if fn, ok := obj.(*types.Func); ok && functionWrapper(fn.Origin()) != nil {
				return true
			}
		}
	}
	return false
}

// functions changes F(ctx, …) to FWithLock(ctx, locker, …).
func (m *migration) functions() {
	for _, u := range m.Units {
		for _, file := range u.Files {
			if facts.IsGenerated(file) || m.isTest(file) || !m.Asked[m.path(file)] {
				continue
			}
			ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					m.function(u, file, id, stack)
				}
				return true
			})
		}
	}
}

func (m *migration) function(u *source.Unit, file *ast.File, id *ast.Ident, stack []ast.Node) {
	fn, ok := u.Info.Uses[id].(*types.Func)
	if !ok || functionWrapper(fn.Origin()) == nil || m.ignored(file, id.Pos()) || !m.once("function", id) {
		return
	}
	m.raw[m.place(id.Pos())] = true
	what := fmt.Sprintf("%s is called without its lock", fn.Name())
	if !isCallee(id, stack) {
		m.leave(id.Pos(), fmt.Sprintf("%s is used as a value, without its lock: use a function that calls %sWithLock", fn.Name(), fn.Name()))
		return
	}
	var call *ast.CallExpr
	for i := len(stack) - 1; i >= 0 && call == nil; i-- {
		call, _ = stack[i].(*ast.CallExpr)
	}
	for _, n := range stack {
		if decl, ok := n.(*ast.FuncDecl); ok && u.Info.Defs[decl.Name] == fn.Origin() {
			m.leave(id.Pos(), what+", by itself: the lock is held there unless the function runs raw")
			return
		}
	}
	l := m.locker(u, file, id.Pos())
	in := m.holder(stack, fn)
	switch {
	case in != nil:
		m.leave(id.Pos(), what+held(in))
	case len(call.Args) == 0 || len(call.Args) == 1 && fn.Signature().Params().Len() > 1 && !fn.Signature().Variadic():
		m.leave(id.Pos(), what+", with the results of another call as arguments: write them out")
	case l.why != "":
		m.leave(id.Pos(), what+", and "+l.why)
	default:
		group := &node{id: nodeID{pos: id.Pos()}, name: fn.Name()}
		m.importing(group, file, l.imports)
		m.insert(group, id.End(), "WithLock")
		m.insert(group, call.Args[0].End(), ", "+l.text)
	}
}
