package scope

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// fixed checks a body whose lease is not renewed.
type fixed struct {
	*checker
	facts.Locked
	lock facts.Lock
}

func (f *fixed) check() {
	inSelect := map[ast.Node]bool{}
	called := f.called()
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.FuncLit:
			return called[n]
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

// called returns the function literals that the body calls, or passes to a function that may
// call them. Those of a timer are left out, because they run in another goroutine.
func (f *fixed) called() map[ast.Node]bool {
	out := map[ast.Node]bool{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.CallExpr:
			out[f.Scope.Source(n.Fun)] = true
			if fn := facts.Callee(f.pass.TypesInfo, n); fn != nil && fn.Name() == "AfterFunc" {
				break
			}
			for _, arg := range n.Args {
				out[f.Scope.Source(arg)] = true
			}
		}
		return true
	})
	return out
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

// isOwn reports whether the method made the channel, so that it waits for its own
// goroutines.
func (f *fixed) isOwn(ch ast.Expr) bool {
	call, ok := f.Scope.Source(ch).(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	return ok && id.Name == "make"
}

// isBound reports whether a receive from the channel ends at a certain time.
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
	if d, made := f.timer(n.X); made != nil {
		f.tooLong(d, made)
		return
	}
	if !f.isOwn(n.X) && !f.isBound(n.X) {
		f.wait(n.X)
	}
}

// selection reports a select that waits only for other goroutines, or for a timer that is longer
// than the lease.
func (f *fixed) selection(n *ast.SelectStmt) {
	var first ast.Expr
	var longest *ast.CallExpr
	var after time.Duration
	for _, s := range n.Body.List {
		comm := s.(*ast.CommClause).Comm
		if comm == nil {
			return // default
		}
		ch := channel(comm)
		if ch == nil {
			return
		}
		if d, made := f.timer(ch); made != nil && d >= f.lock.TTL {
			if longest == nil || d < after {
				longest, after = made, d
			}
			continue
		}
		if f.isBound(ch) || f.isOwn(ch) {
			return
		}
		if first == nil {
			first = ch
		}
	}
	switch {
	case longest != nil:
		f.tooLong(after, longest)
	case first != nil:
		f.wait(first)
	}
}

// channel returns the channel of a case of a select.
func channel(comm ast.Stmt) (ch ast.Expr) {
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
	return ch
}

// sleep reports a constant duration as long as the lease or longer.
func (f *fixed) sleep(call *ast.CallExpr) {
	if d, ok := facts.Constant(f.pass.TypesInfo, call.Args[0]); ok {
		f.tooLong(d, call)
	}
}

// unbound are calls over the network that take no context.
var unbound = []string{
	"net/http.Get", "net/http.Head", "net/http.Post", "net/http.PostForm",
	"net.Dial", "net.LookupHost", "net.LookupIP", "net.LookupAddr", "net/smtp.SendMail", "(*net/rpc.Client).Call",
}

// withContext are calls without a context that have a variant with one.
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
	case slices.Contains(unbound, name), f.isUnbound(n, fn):
		f.report(n, nil, "%s takes no context and has no bound, and the lease of %q ends after %v (renew=off)", types.ExprString(n.Fun), f.lock.Key, f.lock.TTL)
	case fn.Pkg().Path() == "database/sql" && slices.Contains(withContext, fn.Name()):
		f.report(n, f.sqlFix(n, fn), "%s takes no context and has no bound, and the lease of %q ends after %v (renew=off): use %sContext", types.ExprString(n.Fun), f.lock.Key, f.lock.TTL, fn.Name())
	default:
		f.helper(n, fn)
	}
}

// sqlFix uses the variant that takes a context, with the method's context.
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
