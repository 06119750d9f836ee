package fencing

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports writers that are reached without a fencing token.
var Analyzer = &analysis.Analyzer{
	Name:     "fencing",
	Doc:      doctext.Of(doc, "fencing"),
	URL:      doctext.URL("fencing"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

type checker struct {
	*facts.Index
	pass  *analysis.Pass
	scope *facts.Scope
	decl  *ast.FuncDecl
	kept  map[*types.Var][]*facts.Func // the functions that keep a token in a field
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Index: pass.ResultOf[facts.Analyzer].(*facts.Index), pass: pass}
	for _, f := range c.Own.Funcs {
		c.annotation(f)
	}
	c.keeps()
	for _, file := range c.Files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			c.scope, c.decl = c.ScopeOf(pass.TypesInfo, decl), decl
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					c.call(call)
				}
				return true
			})
			c.writer(decl)
		}
	}
	return nil, nil
}

func (c *checker) report(n ast.Node, fence *facts.Fence, format string, args ...any) {
	d := analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name, Message: fmt.Sprintf(format, args...)}
	if fence != nil {
		d.Related = c.Related(fence.Pos, "the token is demanded here")
	}
	c.Report(c.pass, d)
}

// annotation reports an annotation whose name is not a parameter.
func (c *checker) annotation(f *facts.Func) {
	if f.Fence == nil || f.Fence.Param != facts.Unknown {
		return
	}
	if pos := c.Pos(f.Fence.Pos); pos.IsValid() {
		c.Report(c.pass, analysis.Diagnostic{
			Pos: pos, Category: c.pass.Analyzer.Name,
			Message: fmt.Sprintf("%s has no parameter %s", f.Name, f.Fence.Name),
		})
	}
}

// writer reports an annotated function that should take the token from its context, and
// never asks for it.
func (c *checker) writer(decl *ast.FuncDecl) {
	fn, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
	f := c.Func(fn)
	if f == nil || f.Fence == nil || f.Fence.Param != facts.Receiver || c.asks(f, map[string]bool{}) {
		return
	}
	c.report(decl.Name, f.Fence, "%s is to be fenced and asks for no token: call lock.Token(ctx), or name the parameter that brings it", f.Name)
}

// asks reports whether f, or a function that it calls, asks for a token. A call of an unknown
// function counts, because it may.
func (c *checker) asks(f *facts.Func, seen map[string]bool) bool {
	if f.Tokens {
		return true
	}
	seen[f.ID] = true
	for _, call := range f.Calls {
		if call.Dynamic {
			return true
		}
		if to := c.ByID(call.To); to != nil && !seen[to.ID] && c.asks(to, seen) {
			return true
		}
	}
	return false
}

func (c *checker) call(call *ast.CallExpr) {
	fn := facts.Callee(c.pass.TypesInfo, call)
	if facts.IsRuntime(fn, "Token", "TokenOf") {
		if lost := c.scope.LostArgument(call); lost != "" {
			c.report(call, nil, "lock.%s finds no token: %s owns no lock", fn.Name(), lost)
		} else if fn.Name() == "Token" {
			c.ambiguous(call)
		}
		return
	}
	f := c.Func(fn)
	if f == nil || f.Fence == nil {
		return
	}
	fence := f.Fence
	switch {
	case fence.Param == facts.Receiver:
		if lost := c.scope.LostArgument(call); lost != "" {
			c.report(call, fence, "%s takes its fencing token from the context, and %s owns no lock", f.Name, lost)
		}
	case fence.Param >= 0 && fence.Param < len(call.Args):
		if why := c.tokenless(call.Args[fence.Param], 5); why != "" {
			c.report(call.Args[fence.Param], fence, "%s is given no fencing token: %s; pass that of lock.Token(ctx)", f.Name, why)
		} else if why := c.doubtful(call.Args[fence.Param]); why != "" {
			c.report(call.Args[fence.Param], fence, "%s may be given no fencing token: %s", f.Name, why)
		}
	}
}

// tokenless says why e can't be a token, or returns "".
func (c *checker) tokenless(e ast.Expr, depth int) string {
	if tv := c.pass.TypesInfo.Types[e]; tv.Value != nil {
		return types.ExprString(e) + " is a constant"
	}
	e = c.scope.Source(e)
	tv := c.pass.TypesInfo.Types[e]
	switch {
	case depth == 0:
		return ""
	case tv.Value != nil:
		return types.ExprString(e) + " is a constant"
	case tv.IsNil():
		return "nil is none"
	case c.scope.Zero(e):
		return types.ExprString(e) + " is never given a value"
	}
	switch e := e.(type) {
	case *ast.CompositeLit:
		return c.tokenlessLiteral(e, depth)
	case *ast.UnaryExpr:
		return c.tokenless(e.X, depth-1)
	case *ast.BinaryExpr: // token+0 is still a token
		if c.tokenless(e.X, depth-1) == "" || c.tokenless(e.Y, depth-1) == "" {
			return ""
		}
		return types.ExprString(e) + " is none"
	case *ast.CallExpr:
		if c.pass.TypesInfo.Types[e.Fun].IsType() && len(e.Args) == 1 {
			return c.tokenless(e.Args[0], depth-1)
		}
		if fn := facts.Callee(c.pass.TypesInfo, e); fn != nil && fn.Pkg() != nil {
			switch fn.Pkg().Path() {
			case "time", "math/rand", "math/rand/v2", "crypto/rand", "sync/atomic":
				return types.ExprString(e) + " is none"
			}
		}
	}
	return ""
}

// tokenlessLiteral looks for a number in a struct literal that may be a token.
func (c *checker) tokenlessLiteral(lit *ast.CompositeLit, depth int) string {
	why := "none of its fields is one"
	for _, elem := range lit.Elts {
		if kv, ok := elem.(*ast.KeyValueExpr); ok {
			elem = kv.Value
		}
		t := c.pass.TypesInfo.TypeOf(elem)
		if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&types.IsInteger == 0 {
			continue
		}
		if why = c.tokenless(elem, depth-1); why == "" {
			return ""
		}
	}
	return why
}
