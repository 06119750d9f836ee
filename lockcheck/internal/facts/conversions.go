package facts

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Conversion is a place where a value becomes that of an interface.
type Conversion struct {
	Expr     ast.Expr
	From, To types.Type
	Decl     *ast.FuncDecl // the function around it; nil at package level
	Call     *ast.CallExpr // the call whose argument it is, or nil
}

// converter finds the conversions to interfaces of one file.
type converter struct {
	*collector
	decl *ast.FuncDecl
	out  []Conversion
}

// conversions records where values become interfaces. A call of the interface's method may then be
// a call of theirs.
func (c *collector) conversions(file *ast.File) {
	v := &converter{collector: c}
	types := []ast.Node{
		(*ast.CallExpr)(nil), (*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil),
		(*ast.ReturnStmt)(nil), (*ast.CompositeLit)(nil), (*ast.SendStmt)(nil), (*ast.RangeStmt)(nil),
	}
	inspector.New([]*ast.File{file}).WithStack(types, func(n ast.Node, push bool, stack []ast.Node) bool {
		if push {
			v.decl = nil
			if len(stack) > 1 {
				v.decl, _ = stack[1].(*ast.FuncDecl)
			}
			v.visit(n, stack)
		}
		return true
	})
	c.ix.Conversions = append(c.ix.Conversions, v.out...)
	for _, conv := range v.out {
		c.bind(conv)
	}
}

func (v *converter) visit(n ast.Node, stack []ast.Node) {
	info := v.pass.TypesInfo
	switch n := n.(type) {
	case *ast.CallExpr:
		v.call(n)
	case *ast.AssignStmt:
		for i, value := range v.values(n.Rhs) {
			v.note(value, info.TypeOf(n.Lhs[i]), nil)
		}
	case *ast.ValueSpec:
		for i, value := range v.values(n.Values) {
			if n.Type != nil && n.Names[i].Name != "_" {
				v.note(value, info.TypeOf(n.Type), nil)
			}
		}
	case *ast.ReturnStmt:
		if sig := enclosing(info, stack); sig != nil {
			for i, value := range v.values(n.Results) {
				v.note(value, sig.Results().At(i).Type(), nil)
			}
		}
	case *ast.RangeStmt:
		v.ranged(n)
	case *ast.CompositeLit:
		v.literal(n)
	case *ast.SendStmt:
		if ch, ok := info.TypeOf(n.Chan).Underlying().(*types.Chan); ok {
			v.note(v.value(n.Value), ch.Elem(), nil)
		}
	}
}

// value is one value of an expression, which may have several.
type value struct {
	expr ast.Expr
	t    types.Type
}

func (v *converter) value(e ast.Expr) value { return value{e, v.pass.TypesInfo.TypeOf(e)} }

// values returns the values of a list of expressions. A list of one call, map element, receive or
// assertion may have several.
func (v *converter) values(list []ast.Expr) []value {
	var out []value
	for _, e := range list {
		tuple, several := v.pass.TypesInfo.TypeOf(e).(*types.Tuple)
		if !several {
			out = append(out, v.value(e))
			continue
		}
		for part := range tuple.Variables() {
			out = append(out, value{e, part.Type()})
		}
	}
	return out
}

// ranged records the values that a range statement assigns to variables declared elsewhere.
func (v *converter) ranged(n *ast.RangeStmt) {
	info := v.pass.TypesInfo
	t := info.TypeOf(n.X).Underlying()
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem().Underlying()
	}
	var parts []types.Type
	switch t := t.(type) {
	case *types.Map:
		parts = []types.Type{t.Key(), t.Elem()}
	case *types.Chan:
		parts = []types.Type{t.Elem()}
	case *types.Signature: // func(yield func(K, V) bool)
		for yielded := range t.Params().At(0).Type().Underlying().(*types.Signature).Params().Variables() {
			parts = append(parts, yielded.Type())
		}
	case interface{ Elem() types.Type }:
		parts = []types.Type{types.Typ[types.Int], t.Elem()}
	}
	for i, e := range []ast.Expr{n.Key, n.Value} {
		if e != nil && i < len(parts) {
			v.note(value{n.X, parts[i]}, info.TypeOf(e), nil)
		}
	}
}

// enclosing returns the signature of the innermost function around a statement.
func enclosing(info *types.Info, stack []ast.Node) *types.Signature {
	for i := len(stack) - 1; i >= 0; i-- {
		switch n := stack[i].(type) {
		case *ast.FuncLit:
			sig, _ := info.TypeOf(n).(*types.Signature)
			return sig
		case *ast.FuncDecl:
			if fn, ok := info.Defs[n.Name].(*types.Func); ok {
				return fn.Signature()
			}
		}
	}
	return nil
}

func (v *converter) call(n *ast.CallExpr) {
	tv, ok := v.pass.TypesInfo.Types[n.Fun]
	switch {
	case !ok:
		return
	case tv.IsType():
		if len(n.Args) == 1 {
			v.note(v.value(n.Args[0]), tv.Type, n)
		}
		return
	}
	sig, ok := tv.Type.Underlying().(*types.Signature)
	if !ok || tv.IsBuiltin() && !IsAppend(n) {
		return
	}
	last := sig.Params().Len() - 1
	for i, arg := range v.values(n.Args) {
		at := min(i, last)
		if at < 0 {
			return
		}
		t := sig.Params().At(at).Type()
		if slice, ok := t.Underlying().(*types.Slice); ok && sig.Variadic() && at == last && !n.Ellipsis.IsValid() {
			t = slice.Elem()
		}
		v.note(arg, t, n)
	}
}

func (v *converter) literal(n *ast.CompositeLit) {
	info := v.pass.TypesInfo
	t := info.TypeOf(n)
	if t == nil {
		return
	}
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	for i, elem := range n.Elts {
		kv, keyed := elem.(*ast.KeyValueExpr)
		if keyed {
			elem = kv.Value
			if m, ok := t.Underlying().(*types.Map); ok {
				v.note(v.value(kv.Key), m.Key(), nil)
			}
		}
		switch u := t.Underlying().(type) {
		case *types.Struct:
			if keyed {
				if id, ok := kv.Key.(*ast.Ident); ok && info.ObjectOf(id) != nil {
					v.note(v.value(elem), info.ObjectOf(id).Type(), nil)
				}
			} else if i < u.NumFields() {
				v.note(v.value(elem), u.Field(i).Type(), nil)
			}
		case interface{ Elem() types.Type }:
			v.note(v.value(elem), u.Elem(), nil)
		}
	}
}

func (v *converter) note(from value, to types.Type, call *ast.CallExpr) {
	if from.t == nil || to == nil || !isMethodInterface(to) || types.Identical(from.t, to) {
		return
	}
	if b, ok := from.t.(*types.Basic); ok && b.Kind() == types.UntypedNil {
		return
	}
	v.out = append(v.out, Conversion{Expr: from.expr, From: from.t, To: to, Decl: v.decl, Call: call})
}

func isMethodInterface(t types.Type) bool {
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return false
	}
	i, ok := t.Underlying().(*types.Interface)
	return ok && i.NumMethods() > 0
}

// Methods pairs the methods of the interface that take a context with those of
// the value.
func (conv *Conversion) Methods(yield func(method, impl *types.Func) bool) {
	for method := range conv.To.Underlying().(*types.Interface).Methods() {
		params := method.Signature().Params()
		if params.Len() == 0 || !IsContext(params.At(0).Type()) {
			continue
		}
		obj, _, _ := types.LookupFieldOrMethod(conv.From, true, method.Pkg(), method.Name())
		if impl, ok := obj.(*types.Func); ok && !yield(method, impl) {
			return
		}
	}
}

func (c *collector) bind(conv Conversion) {
	for method, impl := range conv.Methods {
		b := Bind{
			Method: ID(method, c.pass.Fset), Impl: ID(impl, c.pass.Fset), Dynamic: types.IsInterface(conv.From),
			Type: types.TypeString(conv.From, types.RelativeTo(c.pass.Pkg)), Pos: c.ix.At(conv.Expr.Pos()),
		}
		if b.Method != b.Impl {
			c.ix.Own.Binds = append(c.ix.Own.Binds, b)
		}
	}
}

// IsAppend reports whether a call of a builtin is one of append.
func IsAppend(call *ast.CallExpr) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	return ok && id.Name == "append"
}

// Callee returns the function or method that a call calls, or nil.
func Callee(info *types.Info, call *ast.CallExpr) *types.Func {
	fn, _ := typeutil.Callee(info, call).(*types.Func)
	return fn
}
