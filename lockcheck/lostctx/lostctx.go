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
	for _, f := range lockgraph.New(ix.Summaries).Lost() {
		lockgraph.Report(pass, ix, f, (*lockgraph.Graph).Lost)
	}
	for _, l := range ix.Locked(pass.TypesInfo) {
		c := &checker{Index: ix, pass: pass, Locked: l}
		c.check()
	}
	return nil, nil
}

// checker looks at one body that runs under a lock.
type checker struct {
	*facts.Index
	pass *analysis.Pass
	facts.Locked
}

func (c *checker) report(n ast.Node, format string, args ...any) {
	c.Report(c.pass, analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Category: c.pass.Analyzer.Name, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) check() {
	joins, fenced := c.joins(), c.fenced()
	ast.Inspect(c.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			return false // clean-up may well outlive the lock
		case *ast.GoStmt:
			if id := c.owned(n); id != nil && !joins {
				c.report(id, "%s goes to a goroutine that the method does not wait for: once it has returned, the lock %s is another's and %s is cancelled",
					id.Name, facts.Quote(c.Locks), id.Name)
			}
			return false
		case *ast.CallExpr:
			fn := facts.Callee(c.pass.TypesInfo, n)
			if fn != nil && fn.FullName() == "context.WithoutCancel" && !fenced && len(n.Args) == 1 {
				if _, owned := c.Scope.Lost(n.Args[0]); owned {
					c.report(n, "%s owns no lock and goes on when %s is lost", types.ExprString(n), facts.Quote(c.Locks))
				}
			}
		case *ast.AssignStmt:
			c.stored(n)
		}
		return true
	})
}

// owned finds a use of a context that owns the lock in what a go statement starts.
func (c *checker) owned(start *ast.GoStmt) (found *ast.Ident) {
	ast.Inspect(start, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || found != nil || !facts.IsContext(c.pass.TypesInfo.TypeOf(id)) || c.pass.TypesInfo.Defs[id] != nil {
			return found == nil
		}
		v, isVar := c.pass.TypesInfo.Uses[id].(*types.Var)
		if !isVar || start.Pos() <= v.Pos() && v.Pos() < start.End() {
			return true
		}
		if lost, owned := c.Scope.Lost(id); owned && lost == "" {
			found = id
		}
		return found == nil
	})
	if found != nil && c.onlyDetached(start, found) {
		return nil
	}
	return found
}

// onlyDetached reports whether all that the goroutine does with the context is to
// take another from it that owns nothing and is not cancelled.
func (c *checker) onlyDetached(n ast.Node, use *ast.Ident) bool {
	obj := c.pass.TypesInfo.Uses[use]
	fine := map[*ast.Ident]bool{}
	all := true
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fn := facts.Callee(c.pass.TypesInfo, n)
			if fn != nil && fn.FullName() == "context.WithoutCancel" && len(n.Args) == 1 {
				if id, ok := ast.Unparen(n.Args[0]).(*ast.Ident); ok {
					fine[id] = true
				}
			}
		case *ast.Ident:
			if c.pass.TypesInfo.Uses[n] == obj && !fine[n] {
				all = false
			}
		}
		return true
	})
	return all
}

// joins reports whether the body waits for something that a goroutine may end with.
func (c *checker) joins() (found bool) {
	ast.Inspect(c.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		case *ast.RangeStmt:
			if t := c.pass.TypesInfo.TypeOf(n.X); t != nil {
				_, isChan := t.Underlying().(*types.Chan)
				found = found || isChan
			}
		case *ast.CallExpr:
			if fn := facts.Callee(c.pass.TypesInfo, n); fn != nil && (fn.Name() == "Wait" || fn.Name() == "Acquire") {
				found = true
			}
		}
		return true
	})
	return found
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

// outlives reports whether an expression is a package's variable or a field of one
// or of the receiver.
func (c *checker) outlives(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		if c.outlives(e.X) {
			return true
		}
		v, ok := c.pass.TypesInfo.Uses[e.Sel].(*types.Var)
		return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
	case *ast.Ident:
		obj := c.pass.TypesInfo.Uses[e]
		if v, ok := obj.(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			return true
		}
		return obj != nil && c.Decl.Recv != nil && len(c.Decl.Recv.List[0].Names) == 1 && c.pass.TypesInfo.Defs[c.Decl.Recv.List[0].Names[0]] == obj
	}
	return false
}
