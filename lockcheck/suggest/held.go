package suggest

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"strings"
)

// hold finds the locks that each function runs under. A lock is certainly held if all callers
// hold it, and may be held if any caller does. A function without a caller in the module is the
// beginning of a path, and runs under no lock.
func (g *graph) hold() {
	for _, f := range g.funcs {
		f.may = maps.Clone(f.locks)
		if f.may == nil {
			f.may = map[string]string{}
		}
	}
	g.behindInterfaces()
	for again := true; again; {
		again = false
		for _, f := range g.funcs {
			again = f.perhaps() || again
		}
	}
	for again := true; again; { // functions that are not reached yet add nothing
		again = false
		for _, f := range g.funcs {
			again = f.surely() || again
		}
	}
}

// behindInterfaces marks methods that implement an annotated interface: the interface's wrapper
// may call them under the lock.
func (g *graph) behindInterfaces() {
	for _, f := range g.sorted() {
		recv := f.fn.Signature().Recv()
		if len(f.locks) == 0 || recv == nil || !types.IsInterface(recv.Type()) {
			continue
		}
		for _, m := range g.implementations(f.fn) {
			g.function(m).mayAny = true
		}
	}
}

// perhaps adds the locks that callers may hold. It reports whether that changed anything.
func (f *function) perhaps() bool {
	before, any := len(f.may), f.mayAny
	for _, c := range f.callers {
		if c.from.wraps {
			continue // the locks of a wrapper are those of the method that it calls
		}
		for class, key := range c.from.may {
			f.may[class] = key
		}
		f.mayAny = f.mayAny || c.from.mayAny || c.from.byHand || c.later && len(c.from.may) > 0
	}
	return len(f.may) > before || f.mayAny != any
}

// surely reduces the locks to those that all reached callers hold.
func (f *function) surely() bool {
	var now map[string]string
	reached := len(f.callers) == 0 || len(f.locks) > 0
	if len(f.locks) == 0 {
		for _, c := range f.callers {
			if !c.from.reached || c.from == f {
				continue
			}
			held := c.from.must
			if c.later {
				held = nil
			}
			if !reached {
				now = maps.Clone(held)
			}
			reached = true
			maps.DeleteFunc(now, func(class, _ string) bool { _, ok := held[class]; return !ok })
		}
	} else {
		now = f.locks
	}
	changed := reached != f.reached || len(now) != len(f.must)
	f.must, f.reached = now, reached
	return changed
}

// isState reports whether an expression is part of something that outlives the function: the value
// to which the receiver points, or a variable of a package.
func (b *body) isState(e ast.Expr) bool {
	info := b.unit.Info
	behind := false
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			v, ok := info.Uses[x].(*types.Var)
			if !ok {
				return false
			}
			if v.Parent() == v.Pkg().Scope() {
				return true
			}
			return behind && b.isReceiver(v)
		case *ast.SelectorExpr:
			sel := info.Selections[x]
			if sel == nil { // pkg.Variable
				_, ok := info.Uses[x.Sel].(*types.Var)
				return ok
			}
			behind = behind || sel.Indirect() || isPointer(info.TypeOf(x.X))
			e = x.X
		case *ast.IndexExpr:
			behind, e = true, x.X
		case *ast.StarExpr:
			behind, e = true, x.X
		default:
			return false
		}
	}
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

func (b *body) isReceiver(v *types.Var) bool {
	r := b.decl.Recv
	return r != nil && len(r.List) == 1 && len(r.List[0].Names) == 1 && b.unit.Info.Defs[r.List[0].Names[0]] == v
}

// isFresh reports whether an expression is a variable whose value this function has made, by a
// literal, by new, or by a constructor.
func (b *body) isFresh(e ast.Expr) bool {
	for {
		sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
		if !ok {
			break
		}
		e = sel.X
	}
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return isMade(e)
	}
	obj := b.unit.Info.Uses[id]
	fresh := false
	ast.Inspect(b.decl.Body, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE {
			return !fresh
		}
		for i, left := range assign.Lhs {
			if name, ok := left.(*ast.Ident); ok && obj != nil && b.unit.Info.Defs[name] == obj {
				fresh = isMade(assign.Rhs[min(i, len(assign.Rhs)-1)])
			}
		}
		return !fresh
	})
	return fresh
}

func isMade(e ast.Expr) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		return x.Op == token.AND && isMade(x.X)
	case *ast.CallExpr:
		name := types.ExprString(x.Fun)
		name = name[strings.LastIndexByte(name, '.')+1:]
		return name == "new" || strings.HasPrefix(strings.ToLower(name), "new") || strings.HasPrefix(strings.ToLower(name), "open")
	}
	return false
}
