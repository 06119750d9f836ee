package lostctx

import (
	"go/ast"
	"go/token"
	"go/types"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// start is code that may run after the method has returned: a go statement, a function for
// a WaitGroup or a timer, or the receiver of a value that is sent on a channel.
type start struct {
	node ast.Node
	to   string // where the context goes: "a goroutine"
}

// starts lists what a body starts, deferred calls included.
func (c *checker) starts(body ast.Node) []start {
	var out []start
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, start{n, "a goroutine"})
			return false
		case *ast.SendStmt:
			if _, local := c.Scope.Source(n.Chan).(*ast.CallExpr); !local {
				out = append(out, start{n, "whoever receives from " + types.ExprString(n.Chan)})
			}
		case *ast.CallExpr:
			switch fn := facts.Callee(c.pass.TypesInfo, n); {
			case startsGoroutine(fn):
				out = append(out, start{n, "a goroutine"})
				return false
			case fn != nil && fn.FullName() == "time.AfterFunc" && !c.stopped(n):
				out = append(out, start{n, "a timer"})
			}
		}
		return true
	})
	return out
}

// startsGoroutine reports whether fn is the method Go of a type that has a method Wait.
func startsGoroutine(fn *types.Func) bool {
	if fn == nil || fn.Name() != "Go" && fn.Name() != "TryGo" || fn.Signature().Recv() == nil {
		return false
	}
	wait, _, _ := types.LookupFieldOrMethod(fn.Signature().Recv().Type(), true, fn.Pkg(), "Wait")
	_, ok := wait.(*types.Func)
	return ok
}

// stopped reports whether the timer that a call makes is stopped, or stored where other code
// may stop it.
func (c *checker) stopped(made *ast.CallExpr) bool {
	found := false
	ast.Inspect(c.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "Stop" && c.Scope.Source(n.X) == made
		case *ast.AssignStmt:
			for i, from := range n.Rhs {
				if from == made && i < len(n.Lhs) {
					_, local := n.Lhs[i].(*ast.Ident)
					found = found || !local
				}
			}
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				found = found || c.Scope.Source(e) == made
			}
		}
		return !found
	})
	return found
}

// started reports a context that ends with the method, in code that may run longer.
func (c *checker) started() {
	starts := c.starts(c.Body)
	if len(starts) == 0 {
		return
	}
	waits := c.waits(c.Body, 0)
	for _, s := range starts {
		id := c.ending(s.node)
		if id == nil || c.joined(s, starts, waits) {
			continue
		}
		c.report(id, "%s goes to %s that the method does not wait for: once it has returned, the lock %s is another's and %s is cancelled",
			id.Name, s.to, facts.Quote(c.Locks), id.Name)
	}
}

// joined reports whether the method waits for s: for something that s names, or that is named
// by a goroutine which waits for s.
func (c *checker) joined(s start, all []start, waits []wait) bool {
	ends := c.mentions(s.node, 0)
	grown := map[ast.Node]bool{s.node: true}
	for again := true; again; {
		again = false
		for _, other := range all {
			if grown[other.node] || !related(ends, c.waitsOf(other.node)) {
				continue
			}
			grown[other.node], again = true, true
			ends = append(ends, c.mentions(other.node, 0)...)
		}
	}
	for _, w := range waits {
		if (w.always || related(ends, w.on)) && c.follows(w, s.node) {
			return true
		}
	}
	return false
}

// waitsOf returns what a goroutine waits for.
func (c *checker) waitsOf(n ast.Node) []path {
	var out []path
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok {
			for _, w := range c.waits(lit.Body, 0) {
				out = append(out, w.on...)
			}
			return false
		}
		return true
	})
	if g, ok := n.(*ast.GoStmt); ok {
		for _, w := range c.waitsIn(g.Call, 0) {
			out = append(out, w.on...)
		}
		for _, arg := range g.Call.Args {
			if canEnd(c.pass.TypesInfo.TypeOf(arg)) {
				out = append(out, c.mentions(arg, 0)...)
			}
		}
	}
	return out
}

// follows reports whether a wait can run after a start: it stands below the start, is
// deferred, or is in the same loop.
func (c *checker) follows(w wait, s ast.Node) bool {
	if w.node.Pos() > s.Pos() {
		return true
	}
	around := false
	ast.Inspect(c.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			around = around || within(n, w.node)
		case *ast.ForStmt, *ast.RangeStmt:
			around = around || !w.slot && within(n, w.node) && within(n, s)
		}
		return true
	})
	return around
}

func within(outer, inner ast.Node) bool {
	return outer.Pos() <= inner.Pos() && inner.End() <= outer.End()
}

// ending finds, in started code, a use of a context that ends with the method.
func (c *checker) ending(start ast.Node) *ast.Ident {
	if id := c.endingIn(start); id != nil {
		return id
	}
	var found *ast.Ident
	ast.Inspect(start, func(n ast.Node) bool { // look into variables with a function or with the value that is sent
		id, ok := n.(*ast.Ident)
		if !ok || found != nil {
			return found == nil
		}
		switch from := c.Scope.Source(id).(type) {
		case *ast.FuncLit:
			found = c.endingIn(from)
		case *ast.CompositeLit:
			found = c.endingIn(from)
		case *ast.UnaryExpr:
			if lit, ok := from.X.(*ast.CompositeLit); ok && from.Op == token.AND {
				found = c.endingIn(lit)
			}
		}
		return found == nil
	})
	return found
}

func (c *checker) endingIn(start ast.Node) (found *ast.Ident) {
	ast.Inspect(start, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || found != nil || !facts.IsContext(c.pass.TypesInfo.TypeOf(id)) || c.pass.TypesInfo.Defs[id] != nil {
			return found == nil
		}
		v, isVar := c.pass.TypesInfo.Uses[id].(*types.Var)
		if !isVar || v.IsField() || start.Pos() <= v.Pos() && v.Pos() < start.End() {
			return true
		}
		if c.Scope.Ends(id) && !c.harmless(start, id) {
			found = id
		}
		return found == nil
	})
	return found
}

// harmless reports whether all uses of a context need no lock: code derives one that is
// never cancelled, waits for its end, reads a value, or logs a line.
func (c *checker) harmless(n ast.Node, use *ast.Ident) bool {
	obj := c.pass.TypesInfo.Uses[use]
	fine := map[*ast.Ident]bool{}
	all := true
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fn := facts.Callee(c.pass.TypesInfo, n)
			if fn == nil || fn.Pkg() == nil || len(n.Args) == 0 {
				break
			}
			if fn.FullName() == "context.WithoutCancel" {
				return false
			}
			if id, ok := ast.Unparen(n.Args[0]).(*ast.Ident); ok && fn.Pkg().Path() == "log/slog" {
				fine[id] = true
			}
		case *ast.SelectorExpr: // ctx.Done(), ctx.Err(), ctx.Value(k)
			if id, ok := ast.Unparen(n.X).(*ast.Ident); ok {
				fine[id] = true
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
