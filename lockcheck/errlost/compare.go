package errlost

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// sentinel returns the name of the error of package lock that e is, or "".
func (c *checker) sentinel(e ast.Expr) string {
	sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	v, ok := c.pass.TypesInfo.Uses[sel.Sel].(*types.Var)
	if !ok || v.Pkg() == nil || v.Pkg().Path() != generator.RuntimePath || !strings.HasPrefix(v.Name(), "Err") || v.Parent() != v.Pkg().Scope() {
		return ""
	}
	return types.ExprString(sel)
}

func (c *checker) compared(n *ast.BinaryExpr) {
	if n.Op != token.EQL && n.Op != token.NEQ {
		return
	}
	left, right := n.X, n.Y
	name := c.sentinel(right)
	if name == "" {
		left, right = right, left
		name = c.sentinel(right)
	}
	if name == "" {
		return
	}
	text := fmt.Sprintf("errors.Is(%s, %s)", types.ExprString(left), name)
	if n.Op == token.NEQ {
		text = "!" + text
	}
	d := analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name,
		Message: fmt.Sprintf("%s is always wrapped, so that %s never finds it: write %s", name, n.Op, text),
	}
	if c.importsErrors() {
		d.SuggestedFixes = []analysis.SuggestedFix{{
			Message: "use errors.Is", TextEdits: []analysis.TextEdit{{Pos: n.Pos(), End: n.End(), NewText: []byte(text)}},
		}}
	}
	c.Report(c.pass, d)
}

func (c *checker) switched(n *ast.SwitchStmt) {
	if n.Tag == nil {
		return
	}
	for _, s := range n.Body.List {
		for _, e := range s.(*ast.CaseClause).List {
			if name := c.sentinel(e); name != "" {
				c.report(e, "%s is always wrapped, so that a switch never finds it: write case errors.Is(%s, %s) in a switch without a tag", name, types.ExprString(n.Tag), name)
			}
		}
	}
}

// swapped reports errors.Is(lock.ErrLost, err), because these errors wrap nothing.
func (c *checker) swapped(n *ast.CallExpr) {
	fn := facts.Callee(c.pass.TypesInfo, n)
	if fn == nil || fn.FullName() != "errors.Is" || len(n.Args) != 2 {
		return
	}
	name := c.sentinel(n.Args[0])
	id, ok := ast.Unparen(n.Args[1]).(*ast.Ident)
	if name == "" || !ok || c.pass.TypesInfo.Types[id].IsNil() {
		return
	}
	text := fmt.Sprintf("%s, %s", id.Name, name)
	c.Report(c.pass, analysis.Diagnostic{
		Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name,
		Message: fmt.Sprintf("the arguments are swapped, and %s wraps nothing: write %s(%s)", name, types.ExprString(n.Fun), text),
		SuggestedFixes: []analysis.SuggestedFix{{
			Message: "swap the arguments", TextEdits: []analysis.TextEdit{{Pos: n.Args[0].Pos(), End: n.Args[1].End(), NewText: []byte(text)}},
		}},
	})
}

// asserted reports a type assertion for an error type of package lock, because other errors may
// wrap it.
func (c *checker) asserted(x, to ast.Expr, how string) {
	t := c.pass.TypesInfo.TypeOf(to)
	if t == nil || c.pass.Pkg.Path() == generator.RuntimePath || !types.Identical(c.pass.TypesInfo.TypeOf(x), types.Universe.Lookup("error").Type()) {
		return
	}
	ptr, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return
	}
	named, ok := types.Unalias(ptr.Elem()).(*types.Named)
	if ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == generator.RuntimePath {
		c.report(to, "a %s may be wrapped, by the method or its callers, and %s does not find it then: use errors.As", types.ExprString(to), how)
	}
}

func (c *checker) typeSwitched(n *ast.TypeSwitchStmt) {
	var x ast.Expr
	ast.Inspect(n.Assign, func(n ast.Node) bool {
		if a, ok := n.(*ast.TypeAssertExpr); ok && x == nil {
			x = a.X
		}
		return x == nil
	})
	for _, s := range n.Body.List {
		for _, e := range s.(*ast.CaseClause).List {
			c.asserted(x, e, "a type switch")
		}
	}
}

func (c *checker) importsErrors() bool {
	for _, spec := range c.file.Imports {
		if spec.Path.Value == `"errors"` && spec.Name == nil {
			return true
		}
	}
	return false
}
