package fencing

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// keeps finds the fields in which functions of this package keep a token.
func (c *checker) keeps() {
	c.kept = map[*types.Var][]*facts.Func{}
	for fn, decl := range c.Decls(c.pass.TypesInfo) {
		scope := c.ScopeOf(c.pass.TypesInfo, decl)
		ast.Inspect(decl.Body, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for i, from := range assign.Rhs { // in token, ok := lock.Token(ctx) the first is the token
				if call, ok := scope.Source(from).(*ast.CallExpr); ok && c.asksToken(call) {
					if field := c.field(assign.Lhs[i]); field != nil {
						c.kept[field] = append(c.kept[field], c.Func(fn))
					}
				}
			}
			return true
		})
	}
}

func (c *checker) asksToken(call *ast.CallExpr) bool {
	return facts.IsRuntime(facts.Callee(c.pass.TypesInfo, call), "Token", "TokenOf")
}

func (c *checker) field(e ast.Expr) *types.Var {
	sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if v, ok := c.pass.TypesInfo.Uses[sel.Sel].(*types.Var); ok && v.IsField() {
		return v
	}
	return nil
}

// doubtful says why e, which comes from a token, may not be the token of this lock.
func (c *checker) doubtful(e ast.Expr) string {
	for {
		call, ok := ast.Unparen(e).(*ast.CallExpr) // a conversion
		if !ok || !c.pass.TypesInfo.Types[call.Fun].IsType() || len(call.Args) != 1 {
			break
		}
		e = call.Args[0]
	}
	from := c.scope.Source(e)
	if lit, ok := from.(*ast.CompositeLit); ok {
		return c.doubtfulLiteral(lit)
	}
	if call, ok := from.(*ast.CallExpr); ok && c.asksToken(call) && c.okIsDropped(call) && !c.isOwned(call) {
		return fmt.Sprintf("the ok of %s is dropped, and where no lock is held the token is 0", types.ExprString(call))
	}
	if field := c.field(from); field != nil && c.isStale(field) {
		return fmt.Sprintf("%s keeps that of an earlier lock; ask lock.Token(ctx)", types.ExprString(from))
	}
	return ""
}

// doubtfulLiteral is doubtful for a struct literal: all its numbers must be doubtful.
func (c *checker) doubtfulLiteral(lit *ast.CompositeLit) (why string) {
	for _, elem := range lit.Elts {
		if kv, ok := elem.(*ast.KeyValueExpr); ok {
			elem = kv.Value
		}
		if !isInteger(c.pass.TypesInfo.TypeOf(elem)) {
			continue
		}
		if why = c.doubtful(elem); why == "" {
			return ""
		}
	}
	return why
}

func isInteger(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0
}

func (c *checker) okIsDropped(call *ast.CallExpr) (found bool) {
	ast.Inspect(c.decl.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 && a.Rhs[0] == call && len(a.Lhs) == 2 {
			id, ok := a.Lhs[1].(*ast.Ident)
			found = found || ok && id.Name == "_"
		}
		return !found
	})
	return found
}

// isOwned reports whether a lock is held at a call: in an annotated method, in a function with
// a call of Do or Acquire, or in a function that only annotated functions call.
func (c *checker) isOwned(call *ast.CallExpr) bool {
	fn, _ := c.pass.TypesInfo.Defs[c.decl.Name].(*types.Func)
	if fn == nil || c.Guarded(fn) != nil {
		return true
	}
	found := false
	ast.Inspect(c.decl.Body, func(n ast.Node) bool {
		if other, ok := n.(*ast.CallExpr); ok && facts.IsLocker(facts.Callee(c.pass.TypesInfo, other), "Do", "Acquire", "AcquireAll", "Lead", "AcquireOnce") {
			found = true
		}
		return !found
	})
	if found || fn.Exported() {
		return found
	}
	f, callers := c.Func(fn), 0
	for _, other := range c.Own.Funcs {
		if f == nil || !slices.ContainsFunc(other.Calls, func(to facts.Call) bool { return to.To == f.ID }) {
			continue
		}
		callers++
		if len(other.Guard) == 0 {
			return false
		}
	}
	return callers > 0
}

// isStale reports whether a field keeps the token of another hold than that of the annotated
// method: the method calls none of the functions that set it, and none of them calls the method.
func (c *checker) isStale(field *types.Var) bool {
	fn, _ := c.pass.TypesInfo.Defs[c.decl.Name].(*types.Func)
	here := c.Guarded(fn)
	setters := c.kept[field]
	if here == nil || len(setters) == 0 || slices.ContainsFunc(here.Guard, func(l facts.Lock) bool { return l.Reentrant }) {
		return false
	}
	for _, s := range setters {
		if s == nil || c.reaches(s, here, map[string]bool{}) || c.reaches(here, s, map[string]bool{}) {
			return false
		}
	}
	return true
}

// reaches reports whether from calls to, directly or not. A call of an unknown function counts.
func (c *checker) reaches(from, to *facts.Func, seen map[string]bool) bool {
	if from.ID == to.ID {
		return true
	}
	seen[from.ID] = true
	for _, call := range from.Calls {
		next := c.ByID(call.To)
		if call.Dynamic || next != nil && !seen[next.ID] && c.reaches(next, to, seen) {
			return true
		}
	}
	return false
}

// ambiguous reports lock.Token in a method that runs under several locks, because it does not say
// which token is meant.
func (c *checker) ambiguous(call *ast.CallExpr) {
	fn, _ := c.pass.TypesInfo.Defs[c.decl.Name].(*types.Func)
	f := c.Guarded(fn)
	if len(call.Args) == 0 { // the method of a Hold
		return
	}
	id, ok := ast.Unparen(call.Args[0]).(*ast.Ident)
	if f == nil || !ok || len(f.Guard) < 2 || f.Guard[0].Backend != f.Guard[1].Backend {
		return
	}
	obj := c.pass.TypesInfo.ObjectOf(id)
	if len(c.scope.Assigned(obj)) > 0 || !c.isParam(obj) {
		return
	}
	c.report(call, nil, "lock.Token finds no token: %s runs under %s; name one with lock.TokenOf", f.Name, facts.Quote(f.Guard))
}

func (c *checker) isParam(obj types.Object) bool {
	for _, f := range c.decl.Type.Params.List {
		for _, name := range f.Names {
			if c.pass.TypesInfo.Defs[name] == obj {
				return true
			}
		}
	}
	return false
}
