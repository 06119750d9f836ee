package scope

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// fixed looks at a body whose lease is not renewed.
type fixed struct {
	*checker
	facts.Locked
	lock facts.Lock
}

func (f *fixed) check() {
	inSelect := map[ast.Node]bool{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.SelectStmt:
			for _, s := range n.Body.List {
				if comm := s.(*ast.CommClause).Comm; comm != nil {
					ast.Inspect(comm, func(n ast.Node) bool {
						inSelect[n] = true
						return true
					})
				}
			}
			f.selection(n)
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !inSelect[n] {
				f.receive(n)
			}
		case *ast.RangeStmt:
			if isChan(f.pass.TypesInfo.TypeOf(n.X)) && !f.isOwn(n.X) {
				f.wait(n.X)
			}
		case *ast.CallExpr:
			f.call(n)
		}
		return true
	})
}

func isChan(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Chan)
	return ok
}

func (f *fixed) wait(ch ast.Expr) {
	f.report(ch, nil, "a wait on %s has no bound, and the lease of %q ends after %v (renew=off): wait on ctx.Done() beside it", types.ExprString(ch), f.lock.Key, f.lock.TTL)
}

// isOwn reports whether the channel is made here: what it waits for is then the
// method's own doing.
func (f *fixed) isOwn(ch ast.Expr) bool {
	call, ok := f.Scope.Source(ch).(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	return ok && id.Name == "make"
}

// isBound reports whether a channel is one that says: time is up.
func (f *fixed) isBound(ch ast.Expr) bool {
	switch e := f.Scope.Source(ch).(type) {
	case *ast.CallExpr:
		fn := facts.Callee(f.pass.TypesInfo, e)
		return fn != nil && (fn.Name() == "Done" || fn.FullName() == "time.After" || fn.FullName() == "time.Tick")
	case *ast.SelectorExpr:
		return e.Sel.Name == "C" && strings.Contains(types.TypeString(f.pass.TypesInfo.TypeOf(e), nil), "time.Time")
	}
	return false
}

func (f *fixed) receive(n *ast.UnaryExpr) {
	if call, ok := f.Scope.Source(n.X).(*ast.CallExpr); ok {
		if fn := facts.Callee(f.pass.TypesInfo, call); fn != nil && fn.FullName() == "time.After" {
			f.sleep(call)
			return
		}
	}
	if !f.isOwn(n.X) && !f.isBound(n.X) {
		f.wait(n.X)
	}
}

// selection reports a select that can wait for nothing but others.
func (f *fixed) selection(n *ast.SelectStmt) {
	var first ast.Expr
	for _, s := range n.Body.List {
		comm := s.(*ast.CommClause).Comm
		if comm == nil {
			return // default
		}
		var ch ast.Expr
		ast.Inspect(comm, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					ch = n.X
				}
			case *ast.SendStmt:
				ch = n.Chan
			}
			return ch == nil
		})
		if ch == nil || f.isBound(ch) || f.isOwn(ch) {
			return
		}
		if first == nil {
			first = ch
		}
	}
	if first != nil {
		f.wait(first)
	}
}

// sleep reports a constant duration that the lease does not outlast.
func (f *fixed) sleep(call *ast.CallExpr) {
	if len(call.Args) != 1 {
		return
	}
	value := f.pass.TypesInfo.Types[call.Args[0]].Value
	if value == nil {
		return
	}
	if ns, ok := constant.Int64Val(constant.ToInt(value)); ok && time.Duration(ns) >= f.lock.TTL {
		f.report(call, nil, "%s takes %v, and the lease of %q ends after %v (renew=off)", types.ExprString(call.Fun), time.Duration(ns), f.lock.Key, f.lock.TTL)
	}
}

// unbound are calls over the network that take no context.
var unbound = []string{
	"net/http.Get", "net/http.Head", "net/http.Post", "net/http.PostForm",
	"net.Dial", "net.LookupHost", "net.LookupIP", "net.LookupAddr", "net/smtp.SendMail", "(*net/rpc.Client).Call",
}

// withContext are those that have a variant which does.
var withContext = []string{"Exec", "Query", "QueryRow", "Ping", "Prepare"}

func (f *fixed) call(n *ast.CallExpr) {
	fn := facts.Callee(f.pass.TypesInfo, n)
	if fn == nil || fn.Pkg() == nil {
		return
	}
	name := fn.FullName()
	switch {
	case name == "time.Sleep":
		f.sleep(n)
	case slices.Contains(unbound, name), f.isDefaultClient(n, fn):
		f.report(n, nil, "%s takes no context and has no bound, and the lease of %q ends after %v (renew=off)", types.ExprString(n.Fun), f.lock.Key, f.lock.TTL)
	case fn.Pkg().Path() == "database/sql" && slices.Contains(withContext, fn.Name()):
		f.report(n, f.sqlFix(n, fn), "%s takes no context and has no bound, and the lease of %q ends after %v (renew=off): use %sContext", types.ExprString(n.Fun), f.lock.Key, f.lock.TTL, fn.Name())
	}
}

// isDefaultClient reports a request by http.DefaultClient, which has no timeout.
func (f *fixed) isDefaultClient(n *ast.CallExpr, fn *types.Func) bool {
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok || types.ExprString(sel.X) != "http.DefaultClient" || fn.Pkg().Path() != "net/http" {
		return false
	}
	if fn.Name() != "Do" {
		return fn.Name() == "Get" || fn.Name() == "Head" || fn.Name() == "Post" || fn.Name() == "PostForm"
	}
	if len(n.Args) != 1 {
		return false
	}
	made, ok := f.Scope.Source(n.Args[0]).(*ast.CallExpr)
	return ok && facts.Callee(f.pass.TypesInfo, made) != nil && facts.Callee(f.pass.TypesInfo, made).FullName() == "net/http.NewRequest"
}

// sqlFix uses the variant that takes a context, with that of the method.
func (f *fixed) sqlFix(n *ast.CallExpr, fn *types.Func) []analysis.SuggestedFix {
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok || len(f.Decl.Type.Params.List) == 0 || len(f.Decl.Type.Params.List[0].Names) == 0 {
		return nil
	}
	ctx := f.Decl.Type.Params.List[0].Names[0].Name
	obj := f.pass.TypesInfo.Defs[f.Decl.Type.Params.List[0].Names[0]]
	inner := f.pass.Pkg.Scope().Innermost(n.Pos())
	if ctx == "_" || inner == nil {
		return nil
	}
	if _, seen := inner.LookupParent(ctx, n.Pos()); seen == nil || !facts.IsContext(seen.Type()) || obj == nil {
		return nil
	}
	text := ctx
	if len(n.Args) > 0 {
		text += ", "
	}
	return []analysis.SuggestedFix{{
		Message: "use " + fn.Name() + "Context",
		TextEdits: []analysis.TextEdit{
			{Pos: sel.Sel.End(), End: sel.Sel.End(), NewText: []byte("Context")},
			{Pos: n.Lparen + 1, End: n.Lparen + 1, NewText: []byte(text)},
		},
	}}
}
