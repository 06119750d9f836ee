package facts

import (
	"go/ast"
	"go/types"
)

// keeper finds the fields in which code that runs under a lock keeps its context: &job{ctx: ctx}.
type keeper struct {
	*collector
	decls   map[*types.Func]*ast.FuncDecl
	entered map[*ast.FuncDecl]bool
}

// keeps follows annotated functions, and the functions that are passed to Locker.Do and
// Locker.Lead, into the functions of this package that they call.
func (c *collector) keeps() {
	c.ix.kept = map[types.Object]bool{}
	k := &keeper{c, c.ix.Decls(c.pass.TypesInfo), map[*ast.FuncDecl]bool{}}
	for fn, decl := range k.decls {
		if c.annotated(fn) != nil {
			k.function(decl)
			continue
		}
		for _, body := range handBodies(c.pass.TypesInfo, decl) {
			k.body(body, c.ix.ScopeOf(c.pass.TypesInfo, decl))
		}
	}
}

func (k *keeper) function(decl *ast.FuncDecl) {
	if decl != nil && !k.entered[decl] {
		k.entered[decl] = true
		k.body(decl.Body, k.ix.ScopeOf(k.pass.TypesInfo, decl))
	}
}

func (k *keeper) body(body ast.Node, scope *Scope) {
	info := k.pass.TypesInfo
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			k.function(k.decls[Callee(info, n)])
		case *ast.CompositeLit:
			k.literal(n, scope)
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if sel, ok := to.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
					k.keep(info.ObjectOf(sel.Sel), n.Rhs[i], scope)
				}
			}
		}
		return true
	})
}

func (k *keeper) literal(lit *ast.CompositeLit, scope *Scope) {
	s, ok := k.pass.TypesInfo.TypeOf(lit).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			k.keep(k.pass.TypesInfo.ObjectOf(kv.Key.(*ast.Ident)), kv.Value, scope)
		} else {
			k.keep(s.Field(i), e, scope)
		}
	}
}

// keep records a variable that gets a context which may own a lock.
func (k *keeper) keep(v types.Object, from ast.Expr, scope *Scope) {
	if v == nil || !IsContext(v.Type()) {
		return
	}
	if lost, _ := scope.Lost(from); lost == "" {
		k.ix.kept[origin(v)] = true
	}
}

// origin returns the field of the generic type of which v is an instance, or v.
func origin(v types.Object) types.Object {
	if field, ok := v.(*types.Var); ok {
		return field.Origin()
	}
	return v
}
