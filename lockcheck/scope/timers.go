package scope

import (
	"go/ast"
	"go/types"
	"time"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// timer returns the duration of a timer or ticker by its channel, if it is a constant that
// nothing changes.
func (f *fixed) timer(ch ast.Expr) (d time.Duration, made *ast.CallExpr) {
	e := f.Scope.Source(ch)
	if sel, ok := e.(*ast.SelectorExpr); ok && sel.Sel.Name == "C" {
		if f.isReset(sel.X) {
			return 0, nil
		}
		e = f.Scope.Source(sel.X)
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return 0, nil
	}
	fn := facts.Callee(f.pass.TypesInfo, call)
	if fn == nil || fn.Pkg() == nil || fn.Pkg().Path() != "time" {
		return 0, nil
	}
	switch fn.Name() {
	case "After", "Tick", "NewTimer", "NewTicker":
		if d, ok := facts.Constant(f.pass.TypesInfo, call.Args[0]); ok {
			return d, call
		}
	}
	return 0, nil
}

// isReset reports whether a timer's duration is changed, or may be.
func (f *fixed) isReset(timer ast.Expr) (found bool) {
	id, ok := ast.Unparen(timer).(*ast.Ident)
	if !ok {
		return false
	}
	obj := f.pass.TypesInfo.ObjectOf(id)
	is := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && f.pass.TypesInfo.ObjectOf(id) == obj
	}
	ast.Inspect(f.Decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "Reset" && is(n.X)
		case *ast.CallExpr:
			for _, arg := range n.Args {
				found = found || is(arg)
			}
		}
		return !found
	})
	return found
}

// tooLong reports a wait that only a timer ends, when the lease is over.
func (f *fixed) tooLong(d time.Duration, made *ast.CallExpr) {
	if made != nil && d >= f.lock.TTL {
		f.report(made, nil, "%s takes %v, and the lease of %q ends after %v (renew=off)", types.ExprString(made.Fun), d, f.lock.Key, f.lock.TTL)
	}
}

// helper reports a call of a function that sleeps longer than the lease lasts.
func (f *fixed) helper(call *ast.CallExpr, fn *types.Func) {
	if known := f.Func(fn); known != nil && len(known.Takes) == 0 && known.Sleeps >= f.lock.TTL {
		f.report(call, nil, "%s sleeps %v, and the lease of %q ends after %v (renew=off)", known.Name, known.Sleeps, f.lock.Key, f.lock.TTL)
	}
}

// requests are the methods of http.Client that take no context.
var requests = map[string]bool{"Get": true, "Head": true, "Post": true, "PostForm": true}

// isUnbound reports whether a call is a request without a context by an http.Client without a timeout.
func (f *fixed) isUnbound(n *ast.CallExpr, fn *types.Func) bool {
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok || fn.Pkg().Path() != "net/http" || fn.Signature().Recv() == nil || !f.hasNoTimeout(sel.X) {
		return false
	}
	if fn.Name() != "Do" || len(n.Args) != 1 {
		return requests[fn.Name()]
	}
	made, ok := f.Scope.Source(n.Args[0]).(*ast.CallExpr)
	return ok && facts.Callee(f.pass.TypesInfo, made) != nil && facts.Callee(f.pass.TypesInfo, made).FullName() == "net/http.NewRequest"
}

// hasNoTimeout reports whether a client is http.DefaultClient, or a variable of this function or
// package that is made by a literal without a timeout and does not get one later.
func (f *fixed) hasNoTimeout(client ast.Expr) bool {
	if types.ExprString(client) == "http.DefaultClient" {
		return true
	}
	id, ok := ast.Unparen(client).(*ast.Ident)
	if !ok {
		return false
	}
	from := f.Scope.Source(id)
	if v, ok := f.pass.TypesInfo.Uses[id].(*types.Var); ok && v.Parent() == f.pass.Pkg.Scope() {
		from = f.declared(v)
	}
	if amp, ok := from.(*ast.UnaryExpr); ok {
		from = amp.X
	}
	lit, ok := from.(*ast.CompositeLit)
	if !ok || types.TypeString(f.pass.TypesInfo.TypeOf(lit), nil) != "net/http.Client" {
		return false
	}
	for _, elem := range lit.Elts { // a Transport may have bounds of its own
		kv, ok := elem.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		if key, ok := kv.Key.(*ast.Ident); !ok || key.Name == "Timeout" || key.Name == "Transport" {
			return false
		}
	}
	return !f.changed(f.pass.TypesInfo.Uses[id])
}

// declared returns the value in the declaration of a variable of this package.
func (f *fixed) declared(v *types.Var) ast.Expr {
	for _, file := range f.Files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				vs, ok := spec.(*ast.ValueSpec)
				for i := 0; ok && i < len(vs.Names) && len(vs.Names) == len(vs.Values); i++ {
					if f.pass.TypesInfo.Defs[vs.Names[i]] == v {
						return vs.Values[i]
					}
				}
			}
		}
	}
	return nil
}

// changed reports whether, after its declaration, a variable or a field of it is assigned to, or
// its address is taken or its value passed on.
func (f *fixed) changed(obj types.Object) (found bool) {
	is := func(e ast.Expr) bool {
		for {
			sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
			if !ok {
				break
			}
			e = sel.X
		}
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && f.pass.TypesInfo.Uses[id] == obj
	}
	for _, file := range f.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, lhs := range n.Lhs {
					found = found || is(lhs)
				}
			case *ast.CallExpr:
				for _, arg := range n.Args {
					found = found || is(arg)
				}
			case *ast.UnaryExpr:
				found = found || n.Op.String() == "&" && is(n.X)
			}
			return !found
		})
	}
	return found
}
