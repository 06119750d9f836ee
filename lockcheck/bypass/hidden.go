package bypass

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// hidden finds values whose methods are called through an interface without a conversion to
// it: arguments of a generic function, and an any whose type is asserted.
func (c *checker) hidden() {
	decls := c.Decls(c.pass.TypesInfo)
	for _, file := range c.Files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			scope := c.ScopeOf(c.pass.TypesInfo, decl)
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					c.generic(n)
					c.passed(n, decls)
				case *ast.TypeAssertExpr:
					c.asserted(n, scope)
				}
				return true
			})
		}
	}
}

// generic reports a type argument of a generic function, which may call its methods through the
// constraint. It is reported if an argument has the type, or if the function makes a value of it.
func (c *checker) generic(call *ast.CallExpr) {
	id := calleeName(call)
	if id == nil || strings.HasSuffix(id.Name, "WithLock") {
		return
	}
	instance, ok := c.pass.TypesInfo.Instances[id]
	fn, isFunc := c.pass.TypesInfo.Uses[id].(*types.Func)
	if !ok || !isFunc {
		return
	}
	sig := fn.Origin().Signature()
	for i := range instance.TypeArgs.Len() {
		param := sig.TypeParams().At(i)
		constraint, ok := param.Constraint().Underlying().(*types.Interface)
		if !ok || constraint.NumMethods() == 0 || types.IsInterface(instance.TypeArgs.At(i)) {
			continue
		}
		at := index(sig.Params(), param)
		conv := facts.Conversion{Expr: id, From: instance.TypeArgs.At(i), To: param.Constraint(), Call: call}
		switch {
		case at >= 0 && at < len(call.Args):
			conv.Expr = call.Args[at]
			c.becomes(conv)
		case at < 0 && makes(constraint, instance, i) && index(sig.Results(), param) < 0:
			c.becomes(conv)
		}
	}
}

// index returns the index of the first variable that holds a value of the type parameter, or -1.
func index(list *types.Tuple, param *types.TypeParam) int {
	for at := range list.Len() {
		if holds(list.At(at).Type(), param) {
			return at
		}
	}
	return -1
}

// makes reports whether a function can make a value of its i-th type argument. It can if the
// constraint says that it is a pointer to another one, as P in [T any, P interface{ *T; Payer }].
func makes(constraint *types.Interface, instance types.Instance, i int) bool {
	ptr, ok := types.Unalias(instance.TypeArgs.At(i)).(*types.Pointer)
	if !ok || constraint.IsMethodSet() {
		return false
	}
	for other := range instance.TypeArgs.Types() {
		if types.Identical(other, ptr.Elem()) {
			return true
		}
	}
	return false
}

// holds reports whether a value of type t is, or has elements of, the type parameter.
func holds(t types.Type, param *types.TypeParam) bool {
	for {
		switch inner := types.Unalias(t).(type) {
		case *types.Slice:
			t = inner.Elem()
		case *types.Array:
			t = inner.Elem()
		case *types.Map:
			t = inner.Elem()
		case *types.Pointer:
			t = inner.Elem()
		default:
			return types.Identical(t, param)
		}
	}
}

// asserted reports an any that was made of a value in this function, and is asserted to be an interface.
func (c *checker) asserted(n *ast.TypeAssertExpr, scope *facts.Scope) {
	if n.Type == nil || !isAny(c.pass.TypesInfo.TypeOf(n.X)) {
		return
	}
	to := c.pass.TypesInfo.TypeOf(n.Type)
	from := c.pass.TypesInfo.TypeOf(scope.Source(n.X))
	if from != nil && to != nil && types.IsInterface(to) && !types.IsInterface(from) {
		c.becomes(facts.Conversion{Expr: n.X, From: from, To: to})
	}
}

func isAny(t types.Type) bool {
	i, ok := t.Underlying().(*types.Interface)
	return ok && i.Empty()
}

// passed reports an argument that a function of this package takes as an any and asserts to be
// an interface.
func (c *checker) passed(call *ast.CallExpr, decls map[*types.Func]*ast.FuncDecl) {
	fn := facts.Callee(c.pass.TypesInfo, call)
	decl := decls[fn]
	if decl == nil || fn.Signature().Variadic() {
		return
	}
	for i, arg := range call.Args {
		from := c.pass.TypesInfo.TypeOf(arg)
		if i >= fn.Signature().Params().Len() || !isAny(fn.Signature().Params().At(i).Type()) || from == nil || types.IsInterface(from) {
			continue
		}
		for _, to := range c.takenFor(decl, fn.Signature().Params().At(i), from) {
			c.becomes(facts.Conversion{Expr: arg, From: from, To: to})
		}
	}
}

// takenFor lists the interfaces that a parameter with a value of type from is asserted to be: by
// assertions, and by the first case of a type switch that fits.
func (c *checker) takenFor(decl *ast.FuncDecl, param *types.Var, from types.Type) []types.Type {
	var out []types.Type
	known := map[string]bool{}
	add := func(e ast.Expr) bool {
		t := c.pass.TypesInfo.TypeOf(e)
		fits := t != nil && types.AssignableTo(from, t)
		if fits && types.IsInterface(t) && !known[t.String()] {
			known[t.String()] = true
			out = append(out, t)
		}
		return fits
	}
	isParam := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && c.pass.TypesInfo.Uses[id] == param
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeAssertExpr:
			if n.Type != nil && isParam(n.X) {
				add(n.Type)
			}
		case *ast.TypeSwitchStmt:
			if c.switchesOn(n, isParam) {
				for _, s := range n.Body.List {
					if slices.ContainsFunc(s.(*ast.CaseClause).List, add) {
						break // a later case does not run
					}
				}
			}
		}
		return true
	})
	return out
}

func (c *checker) switchesOn(n *ast.TypeSwitchStmt, isParam func(ast.Expr) bool) (found bool) {
	ast.Inspect(n.Assign, func(n ast.Node) bool {
		if a, ok := n.(*ast.TypeAssertExpr); ok && isParam(a.X) {
			found = true
		}
		return !found
	})
	return found
}
