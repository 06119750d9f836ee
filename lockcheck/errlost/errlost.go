package errlost

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports errors of locks that are dropped or compared by ==.
var Analyzer = &analysis.Analyzer{
	Name:     "errlost",
	Doc:      doctext.Of(doc, "errlost"),
	URL:      doctext.URL("errlost"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

type checker struct {
	*facts.Index
	pass *analysis.Pass
	file *ast.File
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Index: pass.ResultOf[facts.Analyzer].(*facts.Index), pass: pass}
	nodes := []ast.Node{
		(*ast.ExprStmt)(nil), (*ast.AssignStmt)(nil), (*ast.GoStmt)(nil), (*ast.DeferStmt)(nil),
		(*ast.BinaryExpr)(nil), (*ast.SwitchStmt)(nil),
	}
	for _, file := range c.Files {
		c.file = file
		inspector.New([]*ast.File{file}).WithStack(nodes, func(n ast.Node, push bool, stack []ast.Node) bool {
			if push {
				c.visit(n, stack)
			}
			return true
		})
	}
	return nil, nil
}

func (c *checker) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.ExprStmt:
		c.dropped(n.X, "")
	case *ast.GoStmt:
		if !c.leads(n.Call) {
			c.dropped(n.Call, " by the go statement")
		}
	case *ast.DeferStmt:
		c.dropped(n.Call, " by the defer statement")
		c.release(n.Call, stack)
	case *ast.AssignStmt:
		if id, ok := n.Lhs[len(n.Lhs)-1].(*ast.Ident); ok && id.Name == "_" && len(n.Rhs) == 1 {
			c.dropped(n.Rhs[0], "")
		}
	case *ast.BinaryExpr:
		c.compared(n)
	case *ast.SwitchStmt:
		c.switched(n)
	}
}

// dropped reports a call whose error no one sees.
func (c *checker) dropped(e ast.Expr, by string) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return
	}
	fn := facts.Callee(c.pass.TypesInfo, call)
	if fn == nil || !endsInError(fn) {
		return
	}
	var message string
	locks := c.TakenBy(fn)
	switch {
	case len(locks) > 0:
		message = fmt.Sprintf("the error of %s is dropped%s: it says whether %s was held, and to the end", facts.Name(fn), by, facts.Quote(locks))
	case facts.IsLocker(fn, "Do"):
		message = "the error of Do is dropped" + by + ": it says whether the lock was held, and to the end"
	case facts.IsRuntime(fn, "Check"):
		message = "the error of lock.Check is dropped" + by + ": it is all that Check does"
	default:
		return
	}
	c.Report(c.pass, analysis.Diagnostic{Pos: e.Pos(), End: e.End(), Category: c.pass.Analyzer.Name, Message: message})
}

// leads reports whether a call campaigns until its context ends, which is what its error
// would say.
func (c *checker) leads(call *ast.CallExpr) bool {
	locks := c.TakenBy(facts.Callee(c.pass.TypesInfo, call))
	return len(locks) > 0 && locks[0].Leader
}

func endsInError(fn *types.Func) bool {
	results := fn.Signature().Results()
	return results.Len() > 0 && types.Identical(results.At(results.Len()-1).Type(), types.Universe.Lookup("error").Type())
}

// release reports held.Release(nil) where the loss could be returned.
func (c *checker) release(call *ast.CallExpr, stack []ast.Node) {
	fn := facts.Callee(c.pass.TypesInfo, call)
	if !facts.IsRuntime(fn, "Release") || len(call.Args) != 1 || !c.pass.TypesInfo.Types[call.Args[0]].IsNil() {
		return
	}
	for i := len(stack) - 1; i >= 0; i-- {
		var sig *types.Signature
		switch n := stack[i].(type) {
		case *ast.FuncLit:
			sig, _ = c.pass.TypesInfo.TypeOf(n).(*types.Signature)
		case *ast.FuncDecl:
			sig = c.pass.TypesInfo.Defs[n.Name].(*types.Func).Signature()
		}
		if sig == nil {
			continue
		}
		if n := sig.Results().Len(); n > 0 && types.Identical(sig.Results().At(n-1).Type(), types.Universe.Lookup("error").Type()) {
			c.Report(c.pass, analysis.Diagnostic{
				Pos: call.Pos(), End: call.End(), Category: c.pass.Analyzer.Name,
				Message: "Release(nil) drops the loss of the lock: name the error result and pass its address",
			})
		}
		return
	}
}

// sentinel is the name of the runtime's error that e is, or "".
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
				c.Report(c.pass, analysis.Diagnostic{
					Pos: e.Pos(), End: e.End(), Category: c.pass.Analyzer.Name,
					Message: fmt.Sprintf("%s is always wrapped, so that a switch never finds it: write case errors.Is(%s, %s) in a switch without a tag", name, types.ExprString(n.Tag), name),
				})
			}
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
