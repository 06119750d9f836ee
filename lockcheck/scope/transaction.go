package scope

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// transactions finds locks in one function that are taken inside a transaction and released
// before it commits.
func (c *checker) transactions(decl *ast.FuncDecl) {
	fn, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
	c.held = nil
	if f := c.Guarded(fn); f != nil {
		c.held = f.Guard
	}
	commits := c.commits(decl.Body)
	ast.PreorderStack(decl.Body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			c.inTransaction(n, commits, decl.Body, stack)
			c.literals(n)
		case *ast.FuncLit:
			c.deferred(n.Body)
		}
		return true
	})
	c.deferred(decl.Body)
}

// commit is a place where a transaction is committed. The transaction is a variable or a field
// of one.
type commit struct {
	tx   types.Object
	expr string
	part bool
	pos  token.Pos
	when moment
}

// moment says when code runs. Of two moments in one function the greater one is later.
type moment []token.Pos

// momentOf returns when a call near pos runs. A deferred call runs at the end of the enclosing
// function, and the call that was deferred first runs last. The arguments of a deferred call are
// evaluated at once.
func momentOf(call *ast.CallExpr, pos token.Pos, stack []ast.Node) moment {
	isLiteral := func(n ast.Node) bool { _, ok := n.(*ast.FuncLit); return ok }
	end := stack[0].End()
	for i, n := range stack {
		switch n := n.(type) {
		case *ast.FuncLit:
			end = n.End()
		case *ast.DeferStmt:
			if n.Call == call || slices.ContainsFunc(stack[i:], isLiteral) {
				return moment{end, -n.Pos(), pos}
			}
		}
	}
	return moment{pos}
}

func (c *checker) commits(body ast.Node) []commit {
	var out []commit
	ast.PreorderStack(body, nil, func(n ast.Node, stack []ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if made, ok := c.committed(call); ok {
				made.when = momentOf(call, call.Pos(), stack)
				out = append(out, made)
			}
		}
		return true
	})
	return out
}

// committed returns the transaction that a call commits, if it commits one.
func (c *checker) committed(call *ast.CallExpr) (commit, bool) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Commit" || !c.isTransaction(c.pass.TypesInfo.TypeOf(sel.X)) {
		return commit{}, false
	}
	x := ast.Unparen(sel.X)
	field, part := x.(*ast.SelectorExpr)
	if part {
		x = ast.Unparen(field.X)
	}
	id, ok := x.(*ast.Ident)
	if !ok {
		return commit{}, false
	}
	v, ok := c.pass.TypesInfo.Uses[id].(*types.Var)
	return commit{tx: v, expr: types.ExprString(sel.X), part: part, pos: call.Pos()}, ok
}

// isTransaction reports whether type t has the methods Commit and Rollback.
func (c *checker) isTransaction(t types.Type) bool {
	if t == nil {
		return false
	}
	for _, name := range []string{"Commit", "Rollback"} {
		obj, _, _ := types.LookupFieldOrMethod(t, true, c.pass.Pkg, name)
		if _, ok := obj.(*types.Func); !ok {
			return false
		}
	}
	return true
}

// locks returns the locks that a call takes and releases. It leaves out those that the enclosing
// function holds, because they stay held. Keys that are spelled alike count as one lock.
func (c *checker) locks(call *ast.CallExpr) string {
	fn := facts.Callee(c.pass.TypesInfo, call)
	locks := slices.DeleteFunc(slices.Clone(c.TakenBy(fn)), func(l facts.Lock) bool {
		return slices.ContainsFunc(c.held, func(h facts.Lock) bool { return h.Key == l.Key && h.Backend == l.Backend })
	})
	if len(locks) > 0 {
		return facts.Quote(locks)
	}
	if facts.IsLocker(fn, "Do") && len(call.Args) == 4 {
		return types.ExprString(call.Args[2])
	}
	return ""
}

// inTransaction reports a locked call that gets a transaction which commits after it.
func (c *checker) inTransaction(call *ast.CallExpr, commits []commit, body ast.Node, stack []ast.Node) {
	if len(commits) == 0 {
		return
	}
	locks := c.locks(call)
	if locks == "" {
		return
	}
	for _, at := range commits {
		if slices.Compare(at.when, momentOf(call, call.End(), stack)) < 0 {
			continue
		}
		given := c.isGiven(call, at.tx, c.carriersOf(body, at.tx))
		if given || !at.part && c.mentions(call, at.tx) {
			c.report(call, nil, "the lock %s is released before %s commits (line %d): take it around the whole transaction", locks, at.expr, c.At(at.pos).Line)
			return
		}
	}
}

func (c *checker) mentions(n ast.Node, obj types.Object) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && c.pass.TypesInfo.Uses[id] == obj {
			found = true
		}
		return !found
	})
	return found
}

// literals reports locked calls in a function literal that gets a transaction. The function that
// calls the literal commits.
func (c *checker) literals(outer *ast.CallExpr) {
	if facts.IsLocker(facts.Callee(c.pass.TypesInfo, outer), "Do") {
		return
	}
	for _, arg := range outer.Args {
		lit, ok := ast.Unparen(arg).(*ast.FuncLit)
		if !ok {
			continue
		}
		if ctx := c.inContext(outer, lit); ctx != nil {
			c.underLiteral(outer, lit, ctx)
			continue
		}
		for _, field := range lit.Type.Params.List {
			for _, name := range field.Names {
				if tx := c.pass.TypesInfo.Defs[name]; tx != nil && c.isTransaction(tx.Type()) {
					c.underLiteral(outer, lit, tx)
				}
			}
		}
	}
}

// underLiteral reports locked calls in a literal that get its transaction, or the context that
// has it.
func (c *checker) underLiteral(outer *ast.CallExpr, lit *ast.FuncLit, tx types.Object) {
	known := c.carriersOf(lit.Body, tx)
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if locks := c.locks(call); locks != "" && (c.mentions(call, tx) || c.isGiven(call, tx, known)) {
			c.report(call, nil, "the lock %s is released before %s commits the transaction of %s: take it around the whole transaction",
				locks, types.ExprString(outer.Fun), tx.Name())
		}
		return true
	})
}

// deferred reports a deferred Commit that runs after a deferred Release, because what is
// deferred first runs last.
func (c *checker) deferred(body *ast.BlockStmt) {
	var commit *ast.DeferStmt
	for _, s := range body.List {
		d, ok := s.(*ast.DeferStmt)
		if !ok {
			continue
		}
		if commit != nil && facts.IsRuntime(facts.Callee(c.pass.TypesInfo, d.Call), "Release") {
			c.report(commit, nil, "this commit runs after the lock is released on line %d, because what is deferred first runs last: begin the transaction under the lock", c.At(d.Pos()).Line)
			return
		}
		if len(c.commits(d)) > 0 {
			commit = d
		}
	}
}
