package errlost

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"

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
		(*ast.BinaryExpr)(nil), (*ast.SwitchStmt)(nil), (*ast.CallExpr)(nil), (*ast.TypeAssertExpr)(nil), (*ast.TypeSwitchStmt)(nil),
		(*ast.ValueSpec)(nil), (*ast.FuncDecl)(nil),
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
	case *ast.CallExpr:
		c.swapped(n)
	case *ast.TypeAssertExpr:
		if n.Type != nil {
			c.asserted(n.X, n.Type, "a type assertion")
		}
	case *ast.TypeSwitchStmt:
		c.typeSwitched(n)
	case *ast.ValueSpec:
		if len(n.Values) == 1 && n.Names[len(n.Names)-1].Name == "_" {
			c.dropped(n.Values[0], "")
		}
	case *ast.FuncDecl:
		if n.Body != nil {
			c.unread(n)
		}
	}
}

// dropped reports a call whose error nobody reads.
func (c *checker) dropped(e ast.Expr, by string) {
	if of, says := c.tells(e); of != "" {
		c.report(e, "the error of %s is dropped%s: %s", of, by, says)
	}
}

func (c *checker) report(n ast.Node, format string, args ...any) {
	c.Report(c.pass, analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name, Message: fmt.Sprintf(format, args...)})
}

// tells returns the name of a call whose error is about a lock, and what the error says. For any
// other expression it returns "".
func (c *checker) tells(e ast.Expr) (of, says string) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	fn := facts.Callee(c.pass.TypesInfo, call)
	if fn == nil || !endsInError(fn) {
		return "", ""
	}
	locks := c.TakenBy(fn)
	switch {
	case len(locks) > 0:
		return facts.Name(fn), "it says whether " + facts.Quote(locks) + " was held, and to the end"
	case facts.IsLocker(fn, "Do"):
		return "Do", "it says whether the lock was held, and to the end"
	case facts.IsRuntime(fn, "Check"):
		return "lock.Check", "it is all that Check does"
	}
	return "", ""
}

// leads reports whether a call campaigns until its context ends. Its error says only that.
func (c *checker) leads(call *ast.CallExpr) bool {
	locks := c.TakenBy(facts.Callee(c.pass.TypesInfo, call))
	return len(locks) > 0 && locks[0].Kind == "leader"
}

func endsInError(fn *types.Func) bool {
	results := fn.Signature().Results()
	return results.Len() > 0 && types.Identical(results.At(results.Len()-1).Type(), types.Universe.Lookup("error").Type())
}

// release reports held.Release(nil) in a function that could return the error.
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
