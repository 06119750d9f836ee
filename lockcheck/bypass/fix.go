package bypass

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// fix replaces the call by one through a field of the receiver, if only one field is
// possible.
func (c *checker) fix(id *ast.Ident, fn *types.Func, decl *ast.FuncDecl, root ast.Node, call *ast.CallExpr) []analysis.SuggestedFix {
	if decl == nil || decl.Recv == nil || len(decl.Recv.List) != 1 || len(decl.Recv.List[0].Names) != 1 {
		return nil
	}
	recv := c.pass.TypesInfo.Defs[decl.Recv.List[0].Names[0]]
	if recv == nil || c.deadlocks(decl, fn) {
		return nil
	}
	if fn.Signature().Recv() == nil {
		return c.fixFunction(id, recv, call)
	}
	sel := selectorOf(root, id)
	if sel == nil {
		return nil
	}
	x, ok := ast.Unparen(sel.X).(*ast.Ident)
	if !ok || c.pass.TypesInfo.Uses[x] != recv {
		return nil
	}
	field := c.only(recv.Type(), func(f *types.Var) bool { return c.wraps(f.Type(), fn) })
	if field == "" {
		return nil
	}
	return []analysis.SuggestedFix{{
		Message:   "call it through " + x.Name + "." + field,
		TextEdits: []analysis.TextEdit{{Pos: x.End(), End: x.End(), NewText: []byte("." + field)}},
	}}
}

// deadlocks reports whether decl may run under a lock that the wrapper of fn also takes, without
// reentrant.
func (c *checker) deadlocks(decl *ast.FuncDecl, fn *types.Func) bool {
	self, _ := c.pass.TypesInfo.Defs[decl.Name].(*types.Func)
	outer, inner := c.guarded(self), c.guarded(fn)
	return outer != nil && slices.ContainsFunc(inner.Guard, func(l facts.Lock) bool {
		return !l.Reentrant && slices.ContainsFunc(outer.Guard, func(o facts.Lock) bool { return o.Class() == l.Class() })
	})
}

// fixFunction replaces a call of F by one of FWithLock with the receiver's Locker.
func (c *checker) fixFunction(id *ast.Ident, recv types.Object, call *ast.CallExpr) []analysis.SuggestedFix {
	if call == nil || len(call.Args) == 0 {
		return nil
	}
	if _, several := c.pass.TypesInfo.TypeOf(call.Args[0]).(*types.Tuple); several {
		return nil // the arguments are the results of one call, so none can be added
	}
	if _, seen := c.pass.Pkg.Scope().Innermost(id.Pos()).LookupParent(recv.Name(), id.Pos()); seen != recv {
		return nil // the receiver is blank or hidden
	}
	field := c.only(recv.Type(), func(f *types.Var) bool { return isLockerPointer(f.Type()) })
	if field == "" {
		return nil
	}
	after := call.Args[0].End()
	return []analysis.SuggestedFix{{
		Message: "call " + id.Name + "WithLock",
		TextEdits: []analysis.TextEdit{
			{Pos: id.End(), End: id.End(), NewText: []byte("WithLock")},
			{Pos: after, End: after, NewText: fmt.Appendf(nil, ", %s.%s", recv.Name(), field)},
		},
	}}
}

// only returns the name of the field that fits, if there is exactly one.
func (c *checker) only(t types.Type, fits func(*types.Var) bool) string {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return ""
	}
	name := ""
	for f := range s.Fields() {
		if f.Embedded() || !fits(f) {
			continue
		}
		if name != "" {
			return ""
		}
		name = f.Name()
	}
	return name
}

// wraps reports whether a value of type t calls fn under its lock: t is the wrapper, or an
// interface whose value is known to be the wrapper.
func (c *checker) wraps(t types.Type, fn *types.Func) bool {
	obj, _, _ := types.LookupFieldOrMethod(t, true, c.pass.Pkg, fn.Name())
	method, ok := obj.(*types.Func)
	if !ok {
		return false
	}
	raw := facts.ID(fn, c.pass.Fset)
	if f := c.Func(method); f != nil && f.Wraps == raw {
		return true
	}
	if !types.IsInterface(t) {
		return false
	}
	id := facts.ID(method, c.pass.Fset)
	for _, s := range c.Summaries {
		for _, b := range s.Binds {
			if impl := c.ByID(b.Impl); b.Method == id && impl != nil && impl.Wraps == raw {
				return true
			}
		}
	}
	return false
}

func isLockerPointer(t types.Type) bool {
	ptr, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return false
	}
	named, ok := types.Unalias(ptr.Elem()).(*types.Named)
	return ok && named.Obj().Name() == "Locker" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == generator.RuntimePath
}

// selectorOf returns the selector expression with the name id.
func selectorOf(root ast.Node, id *ast.Ident) (found *ast.SelectorExpr) {
	ast.Inspect(root, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel == id {
			found = sel
		}
		return found == nil
	})
	return found
}
