package readwrite

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/doctext"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

//go:embed doc.go
var doc string

// Analyzer reports methods under a read lock that change their receiver.
var Analyzer = &analysis.Analyzer{
	Name:     "readwrite",
	Doc:      doctext.Of(doc, "readwrite"),
	URL:      doctext.URL("readwrite"),
	Run:      run,
	Requires: []*analysis.Analyzer{facts.Analyzer},
}

type checker struct {
	*facts.Index
	pass *analysis.Pass
}

func run(pass *analysis.Pass) (any, error) {
	c := &checker{Index: pass.ResultOf[facts.Analyzer].(*facts.Index), pass: pass}
	for _, body := range c.Locked(pass.TypesInfo) {
		if onlyReads(body.Locks) && body.Decl.Recv != nil && !c.locks(body.Body) {
			c.body(body)
		}
	}
	return nil, nil
}

// onlyReads reports whether all of locks are shared with others.
func onlyReads(locks []facts.Lock) bool {
	for _, l := range locks {
		if !l.Read {
			return false
		}
	}
	return true
}

// locks reports whether body takes a mutex of package sync, or uses a channel as a mutex, which
// may guard its changes.
func (c *checker) locks(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SendStmt:
			found = true
		case *ast.CallExpr:
			fn := facts.Callee(c.pass.TypesInfo, n)
			found = found || fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "sync" && (fn.Name() == "Lock" || fn.Name() == "Do")
		}
		return !found
	})
	return found
}

// assigned reports whether body assigns another value to the receiver itself.
func (c *checker) assigned(body *ast.BlockStmt, receiver types.Object) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok {
			for _, left := range assign.Lhs {
				id, _ := ast.Unparen(left).(*ast.Ident)
				found = found || id != nil && c.pass.TypesInfo.Uses[id] == receiver
			}
		}
		return !found
	})
	return found
}

func (c *checker) body(body facts.Locked) {
	names := body.Decl.Recv.List[0].Names
	if len(names) == 0 {
		return
	}
	receiver := c.pass.TypesInfo.Defs[names[0]]
	if receiver == nil || c.assigned(body.Body, receiver) {
		return
	}
	called := map[*ast.FuncLit]bool{} // literals called at once; others may run under another lock
	say := func(at, place ast.Expr) {
		if c.shared(place, receiver) {
			c.Report(c.pass, analysis.Diagnostic{
				Pos: at.Pos(), End: at.End(), Category: c.pass.Analyzer.Name,
				Message: fmt.Sprintf("%s is changed under the read side of %s, which others have at the same time: say write",
					types.ExprString(at), facts.Quote(body.Locks)),
				Related: c.Related(body.Locks[0].Pos, "the lock is asked for here"),
			})
		}
	}
	report := func(at ast.Expr) { say(at, at) }
	ast.Inspect(body.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if lit, ok := ast.Unparen(n.Fun).(*ast.FuncLit); ok {
				called[lit] = true
			}
			if c.changes(n) {
				say(n.Args[0], &ast.IndexExpr{X: n.Args[0]})
			}
		case *ast.FuncLit:
			return called[n]
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, left := range n.Lhs {
					report(left)
				}
			}
		case *ast.IncDecStmt:
			report(n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				for _, left := range []ast.Expr{n.Key, n.Value} {
					if left != nil {
						report(left)
					}
				}
			}
		}
		return true
	})
}

// changes reports whether a call is of a builtin that changes the elements of its first
// argument.
func (c *checker) changes(call *ast.CallExpr) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok || len(call.Args) == 0 {
		return false
	}
	builtin, ok := c.pass.TypesInfo.Uses[id].(*types.Builtin)
	return ok && (builtin.Name() == "delete" || builtin.Name() == "clear" || builtin.Name() == "copy")
}

// shared reports whether all copies of the receiver share the place e: it is behind a pointer,
// or an element of a map or slice.
func (c *checker) shared(e ast.Expr, receiver types.Object) bool {
	behind := false
	for {
		e = ast.Unparen(e)
		var inner ast.Expr
		switch x := e.(type) {
		case *ast.Ident:
			return behind && c.pass.TypesInfo.Uses[x] == receiver
		case *ast.SelectorExpr:
			sel := c.pass.TypesInfo.Selections[x]
			if sel == nil || sel.Kind() != types.FieldVal {
				return false
			}
			behind = behind || sel.Indirect()
			inner = x.X
		case *ast.IndexExpr:
			behind, inner = behind || c.refers(x.X), x.X
		case *ast.SliceExpr:
			behind, inner = behind || c.refers(x.X), x.X
		case *ast.StarExpr:
			behind, inner = true, x.X
		default:
			return false
		}
		e = inner
	}
}

// refers reports whether the elements of e are stored outside of e, as those of a map.
func (c *checker) refers(e ast.Expr) bool {
	if s, ok := ast.Unparen(e).(*ast.SliceExpr); ok {
		return c.refers(s.X)
	}
	switch c.pass.TypesInfo.TypeOf(e).Underlying().(type) {
	case *types.Map, *types.Slice, *types.Pointer:
		return true
	}
	return false
}
