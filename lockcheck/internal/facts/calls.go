package facts

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// body collects the calls of one function.
type body struct {
	*collector
	scope *Scope
	fn    *Func
	decl  *ast.FuncDecl
}

func (c *collector) bodies(file *ast.File) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		if fn, ok := c.pass.TypesInfo.Defs[decl.Name].(*types.Func); ok {
			b := &body{collector: c, fn: c.fn(fn), decl: decl, scope: c.ix.ScopeOf(c.pass.TypesInfo, decl)}
			b.collect(decl.Body)
		}
	}
}

// collect records the calls of node. Calls in a go statement do not count, because nobody waits
// for them. A function literal counts as called where it is written, because most are.
func (b *body) collect(node ast.Node) {
	callees := map[ast.Expr]bool{}
	lost := map[ast.Expr]string{} // the arguments of a call whose context owns no lock
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			for _, arg := range n.Call.Args {
				b.collect(arg)
			}
			return false
		case *ast.CallExpr:
			callees[ast.Unparen(n.Fun)] = true
			for _, arg := range n.Args {
				lost[ast.Unparen(arg)] = b.scope.LostArgument(n)
			}
			return b.call(n)
		case *ast.SelectorExpr:
			if sel := b.pass.TypesInfo.Selections[n]; sel != nil && sel.Kind() == types.MethodVal && !callees[n] {
				call := b.callOf(sel.Obj().(*types.Func), n.Pos())
				call.Lost = lost[n]
				b.add(sel.Obj().(*types.Func), call)
			}
		}
		return true
	})
}

// add records a call. A method of an interface counts only if it takes a context, because every
// wrapper takes one.
func (b *body) add(fn *types.Func, call Call) {
	if call.Dynamic && (fn.Signature().Params().Len() == 0 || !IsContext(fn.Signature().Params().At(0).Type())) {
		return
	}
	b.fn.Calls = append(b.fn.Calls, call)
}

// call records one call, and reports whether to look into its arguments.
func (b *body) call(n *ast.CallExpr) bool {
	fn := Callee(b.pass.TypesInfo, n)
	if fn == nil {
		return true
	}
	if IsRuntime(fn, "Token", "TokenOf") {
		b.fn.Tokens = true
	}
	if IsLocker(fn, "Do") && len(n.Args) == 4 {
		if b.byHand(n) {
			return false
		}
	}
	call := b.callOf(fn, n.Pos())
	call.Lost = b.scope.LostArgument(n)
	if ctx := contextArgument(b.pass.TypesInfo, n); call.Lost == "" && ctx != nil && len(b.fn.Guard) > 0 {
		call.Lost = b.scope.Request(ctx)
	}
	for _, arg := range n.Args {
		call.Args = append(call.Args, b.scope.Canonical(arg))
	}
	b.add(fn, call)
	return true
}

func (c *collector) callOf(fn *types.Func, pos token.Pos) Call {
	call := Call{To: ID(fn, c.pass.Fset), Name: Name(fn), Pos: c.ix.At(pos)}
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		call.Dynamic = true
	}
	return call
}

// byHand treats locker.Do(ctx, policy, key, func) as a wrapper, and the function as the function
// that it wraps. It reports whether the key is known.
func (b *body) byHand(n *ast.CallExpr) bool {
	lit, ok := ast.Unparen(n.Args[3]).(*ast.FuncLit)
	lock, known := b.handLock(n)
	if !ok || !known {
		return false
	}
	at := b.ix.At(n.Pos())
	wrapper := &Func{
		ID: fmt.Sprintf("%s$%d:%d", b.fn.ID, at.Line, at.Column), Name: strings.TrimSuffix(b.fn.Name, " (Do)") + " (Do)", Pos: at, Takes: []Lock{lock},
	}
	inner := &Func{ID: wrapper.ID + "$", Name: wrapper.Name, Pos: at, Guard: []Lock{lock}}
	wrapper.Wraps = inner.ID
	wrapper.Calls = []Call{{To: inner.ID, Name: inner.Name, Pos: at}}
	b.own[wrapper.ID], b.own[inner.ID] = wrapper, inner
	b.add(nil, Call{To: wrapper.ID, Name: wrapper.Name, Pos: at, Lost: b.scope.LostArgument(n)})
	under := &body{collector: b.collector, fn: inner, decl: b.decl, scope: b.scope}
	under.collect(lit.Body)
	b.fn.Tokens = b.fn.Tokens || inner.Tokens
	return true
}

// handLock returns the lock that a call of Do takes, if its key is a constant or the result of
// a generated function.
func (b *body) handLock(n *ast.CallExpr) (Lock, bool) {
	l := Lock{Method: b.fn.Name, Package: b.pass.Pkg.Path(), Pos: b.ix.At(n.Pos()), Hand: true, Reentrant: true, Items: "by hand"}
	if text := b.scope.Canonical(n.Args[2]); strings.HasPrefix(text, `="`) {
		l.Key = strings.Trim(text[1:], `"`)
		l.Parts = []Part{{Literal: l.Key}}
		return l, l.Key != ""
	}
	call, ok := b.scope.Source(n.Args[2]).(*ast.CallExpr)
	if !ok {
		return l, false
	}
	fn := Callee(b.pass.TypesInfo, call)
	f := b.ix.Func(fn)
	if f == nil && fn != nil {
		f = b.own[ID(fn, b.pass.Fset)]
	}
	if f == nil || f.KeyOf == nil {
		return l, false
	}
	l.Key, l.Backend = f.KeyOf.Key, f.KeyOf.Backend
	for _, p := range f.KeyOf.Parts {
		p.Root = Unknown
		l.Parts = append(l.Parts, p)
	}
	return l, true
}

// prune removes functions that take no lock and call no function that takes one or may
// take one.
func (c *collector) prune() {
	matters := map[string]bool{}
	for id, f := range c.own {
		matters[id] = len(f.Guard)+len(f.Takes) > 0 || f.KeyOf != nil || f.Fence != nil || f.Tokens || f.Sleeps > 0
	}
	relevant := func(call Call) bool {
		return call.Dynamic || matters[call.To] || c.ix.ByID(call.To) != nil
	}
	for again := true; again; {
		again = false
		for id, f := range c.own {
			if !matters[id] && slices.ContainsFunc(f.Calls, relevant) {
				matters[id], again = true, true
			}
		}
	}
	maps.DeleteFunc(c.own, func(id string, f *Func) bool { return !matters[id] })
	c.ix.Own.Binds = slices.DeleteFunc(c.ix.Own.Binds, func(b Bind) bool {
		return !b.Dynamic && !matters[b.Impl] && c.ix.ByID(b.Impl) == nil
	})
	for _, f := range c.own {
		f.Calls = slices.DeleteFunc(f.Calls, func(call Call) bool { return !relevant(call) })
	}
}
