package migrate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// target returns where the value of a use goes.
func (m *migration) target(use *use) target {
	info := use.unit.Info
	e, stack := unparenthesized(use)
	if len(stack) == 0 {
		return target{goal: elsewhere, why: "is used in a way that is not known here"}
	}
	switch p := stack[len(stack)-1].(type) {
	case *ast.SelectorExpr:
		fn, ok := info.Uses[p.Sel].(*types.Func)
		if ok && use.t.methods[fn.Name()] {
			return target{goal: guarded, at: p.Sel, in: m.holder(use.stack, fn)}
		}
		return target{}
	case *ast.AssignStmt:
		for i := range p.Lhs {
			if p.Lhs[i] == e {
				return target{}
			}
			if len(p.Lhs) == len(p.Rhs) && p.Rhs[i] == e {
				return m.assigned(use, p.Lhs[i])
			}
		}
	case *ast.ValueSpec:
		for i := range p.Values {
			if p.Values[i] == e && len(p.Names) == len(p.Values) {
				return m.assigned(use, p.Names[i])
			}
		}
	case *ast.CallExpr:
		return m.passed(use, p, e)
	case *ast.ReturnStmt:
		return m.returned(use, p, e, stack)
	case *ast.KeyValueExpr:
		if len(stack) > 1 && p.Value == e {
			if lit, ok := stack[len(stack)-2].(*ast.CompositeLit); ok {
				return m.element(use, lit, p)
			}
		}
	case *ast.CompositeLit:
		return m.element(use, p, e)
	case *ast.BinaryExpr:
		return m.compared(use, p, e)
	case *ast.SendStmt:
		if ch, ok := info.TypeOf(p.Chan).Underlying().(*types.Chan); ok && p.Value == e {
			return m.becomes(use, ch.Elem(), nil, "is sent on a channel")
		}
	case *ast.ExprStmt:
		return target{}
	case *ast.StarExpr:
		return target{goal: elsewhere, why: "is copied by *"}
	case *ast.UnaryExpr:
		return target{goal: elsewhere, why: "has its address taken"}
	}
	return target{goal: elsewhere, why: "is used in a way that is not known here"}
}

// unparenthesized returns the expression of a use with the parentheses around it, and the nodes
// around these.
func unparenthesized(use *use) (ast.Node, []ast.Node) {
	e, stack := ast.Node(use.expr), use.stack
	for len(stack) > 0 {
		if _, paren := stack[len(stack)-1].(*ast.ParenExpr); !paren {
			break
		}
		e, stack = stack[len(stack)-1], stack[:len(stack)-1]
	}
	return e, stack
}

// becomes returns the target of a value that goes to v, or to something of type t that is not a
// variable.
func (m *migration) becomes(use *use, t types.Type, v *node, otherwise string) target {
	if t == nil {
		return target{goal: elsewhere, why: otherwise}
	}
	if _, param := types.Unalias(t).(*types.TypeParam); param {
		return target{goal: elsewhere, why: "goes to a generic function"}
	}
	i, ok := t.Underlying().(*types.Interface)
	switch {
	case ok && i.NumMethods() == 0:
		return target{goal: elsewhere, why: "becomes an any"}
	case ok:
		for method := range i.Methods() {
			if use.t.methods[method.Name()] {
				return target{goal: converted}
			}
		}
		return target{goal: iface}
	case v != nil:
		return target{goal: variable, to: v}
	}
	return target{goal: elsewhere, why: otherwise}
}

func (m *migration) assigned(use *use, lhs ast.Expr) target {
	info := use.unit.Info
	switch x := ast.Unparen(lhs).(type) {
	case *ast.Ident:
		if x.Name == "_" {
			return target{}
		}
		obj := info.Defs[x]
		if obj == nil {
			obj = info.Uses[x]
		}
		if v, ok := obj.(*types.Var); ok {
			return m.becomes(use, v.Type(), m.variable(v), "goes to "+x.Name+", which is declared elsewhere")
		}
	case *ast.SelectorExpr:
		if v, ok := info.Uses[x.Sel].(*types.Var); ok {
			return m.becomes(use, v.Type(), m.variable(v), "goes to "+v.Name()+", which is declared elsewhere")
		}
	}
	return m.becomes(use, info.TypeOf(lhs), nil, "goes to an element of a slice, an array or a map")
}

// passed returns the target of an argument.
func (m *migration) passed(use *use, call *ast.CallExpr, arg ast.Node) target {
	info := use.unit.Info
	at := -1
	for i, a := range call.Args {
		if a == arg {
			at = i
		}
	}
	if at < 0 {
		return target{}
	}
	fun := info.Types[call.Fun]
	if fun.IsType() {
		return m.becomes(use, fun.Type, nil, "is converted")
	}
	sig, ok := types.Unalias(fun.Type).Underlying().(*types.Signature)
	switch {
	case !ok || fun.IsBuiltin() && (!facts.IsAppend(call) || at == 0 || call.Ellipsis.IsValid()):
		return target{goal: elsewhere, why: "goes to a built-in function"}
	case fun.IsBuiltin():
		return m.becomes(use, sig.Params().At(1).Type().(*types.Slice).Elem(), nil, "is appended to a slice")
	}
	var v *node
	why := "goes to a function that is not known here"
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && info.Selections[sel] != nil && info.Selections[sel].Kind() == types.MethodExpr {
		return target{goal: elsewhere, why: "is an argument of a method that is called as a function"}
	}
	if fn, _ := typeutil.Callee(info, call).(*types.Func); fn != nil {
		why = "goes to " + fn.Name() + ", which is declared elsewhere"
		sig = fn.Origin().Signature()
		if at < sig.Params().Len() {
			v = m.variable(sig.Params().At(at))
		}
	}
	if sig.Variadic() && at >= sig.Params().Len()-1 {
		t := sig.Params().At(sig.Params().Len() - 1).Type()
		if slice, ok := t.(*types.Slice); ok && call.Ellipsis == token.NoPos {
			t = slice.Elem()
		}
		return m.becomes(use, t, nil, "is one of a variable number of arguments")
	}
	return m.becomes(use, sig.Params().At(at).Type(), v, why)
}

func (m *migration) returned(use *use, ret *ast.ReturnStmt, e ast.Node, stack []ast.Node) target {
	info := use.unit.Info
	for i := len(stack) - 1; i >= 0; i-- {
		var sig *types.Signature
		var fn *types.Func
		switch f := stack[i].(type) {
		case *ast.FuncLit:
			sig, _ = info.TypeOf(f).(*types.Signature)
		case *ast.FuncDecl:
			if fn, _ = info.Defs[f.Name].(*types.Func); fn != nil {
				sig = fn.Signature()
			}
		}
		if sig == nil {
			continue
		}
		for at := range ret.Results {
			if ret.Results[at] != e || len(ret.Results) != sig.Results().Len() {
				continue
			}
			if fn == nil {
				return m.becomes(use, sig.Results().At(at).Type(), nil, "is returned by a function without a name")
			}
			return m.becomes(use, sig.Results().At(at).Type(), m.result(fn, at), "is returned")
		}
		break
	}
	return target{goal: elsewhere, why: "is returned"}
}

// element returns the target of a part of a composite literal.
func (m *migration) element(use *use, lit *ast.CompositeLit, part ast.Node) target {
	info := use.unit.Info
	t := info.TypeOf(lit)
	if ptr, ok := t.Underlying().(*types.Pointer); ok { // {…} in a []*T
		t = ptr.Elem()
	}
	switch t := t.Underlying().(type) {
	case *types.Struct:
		for i, e := range lit.Elts {
			if e != part {
				continue
			}
			field := t.Field(min(i, t.NumFields()-1))
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				id, _ := kv.Key.(*ast.Ident)
				if field, _ = info.Uses[id].(*types.Var); field == nil {
					break
				}
			}
			return m.becomes(use, field.Type(), m.variable(field), "goes to the field "+field.Name()+" of a type that is declared elsewhere")
		}
	case interface{ Elem() types.Type }:
		return m.becomes(use, t.Elem(), nil, "is an element of a slice, an array or a map")
	}
	return target{goal: elsewhere, why: "is a part of a literal"}
}

func (m *migration) compared(use *use, p *ast.BinaryExpr, e ast.Node) target {
	other := p.X
	if other == e {
		other = p.Y
	}
	if !use.unit.Info.Types[other].IsNil() {
		return target{goal: elsewhere, why: fmt.Sprintf("is compared by %s", p.Op)}
	}
	if use.from != nil {
		use.from.isNil = true
	}
	return target{}
}
