package lostctx

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/lockgraph"
)

//go:embed doc.go
var doc string

// Analyzer reports contexts that lose the lock they should own.
var Analyzer = &analysis.Analyzer{
	Name:     "lostctx",
	Doc:      doctext.Of(doc, "lostctx"),
	URL:      doctext.URL("lostctx"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

func run(pass *analysis.Pass) (any, error) {
	ix := pass.ResultOf[facts.Analyzer].(*facts.Index)
	lockgraph.ReportAll(pass, ix, (*lockgraph.Graph).Lost)
	decls := ix.Decls(pass.TypesInfo)
	for _, l := range ix.Locked(pass.TypesInfo) {
		c := &checker{Index: ix, pass: pass, Locked: l, decls: decls, entered: map[*ast.FuncDecl]bool{}}
		c.check()
	}
	return nil, nil
}

// checker checks one body that runs under a lock.
type checker struct {
	*facts.Index
	pass *analysis.Pass
	facts.Locked
	decls   map[*types.Func]*ast.FuncDecl // the functions of this package
	entered map[*ast.FuncDecl]bool        // the functions that inside is looking into
}

func (c *checker) report(n ast.Node, format string, args ...any) {
	c.Report(c.pass, analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) check() {
	c.started()
	fenced := c.fenced()
	ast.Inspect(c.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt, *ast.GoStmt:
			return false // clean-up may outlive the lock
		case *ast.CallExpr:
			fn := facts.Callee(c.pass.TypesInfo, n)
			if fn != nil && fn.FullName() == "context.WithoutCancel" && !fenced && len(n.Args) == 1 {
				if _, owned := c.Scope.Lost(n.Args[0]); owned {
					c.report(n, "%s owns no lock and goes on when %s is lost", types.ExprString(n), facts.Quote(c.Locks))
				}
			}
			if !fenced {
				c.written(n)
			}
		case *ast.AssignStmt:
			c.stored(n)
		}
		return true
	})
}

func (c *checker) fenced() (found bool) {
	ast.Inspect(c.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && facts.IsRuntime(facts.Callee(c.pass.TypesInfo, call), "Token", "TokenOf") {
			found = true
		}
		return true
	})
	return found
}

// stored reports a context that is kept where it outlives the method.
func (c *checker) stored(n *ast.AssignStmt) {
	if n.Tok != token.ASSIGN || len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, lhs := range n.Lhs {
		if !facts.IsContext(c.pass.TypesInfo.TypeOf(lhs)) || !c.outlives(lhs) {
			continue
		}
		if _, owned := c.Scope.Lost(n.Rhs[i]); owned {
			c.report(lhs, "%s outlives the method: its context owns the lock %s only until then, and is cancelled after", types.ExprString(lhs), facts.Quote(c.Locks))
		}
	}
}

// outlives reports whether an expression is a package's variable, or a field of one or of
// the receiver.
func (c *checker) outlives(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		if c.outlives(e.X) {
			return true
		}
		v, ok := c.pass.TypesInfo.Uses[e.Sel].(*types.Var)
		return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
	case *ast.IndexExpr:
		return c.outlives(e.X)
	case *ast.Ident:
		obj := c.pass.TypesInfo.Uses[e]
		if v, ok := obj.(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			return true
		}
		return obj != nil && c.Decl.Recv != nil && len(c.Decl.Recv.List[0].Names) == 1 && c.pass.TypesInfo.Defs[c.Decl.Recv.List[0].Names[0]] == obj
	}
	return false
}
