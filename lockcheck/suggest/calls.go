package suggest

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
	"github.com/lockgen/lockgen/lockcheck/lostctx"
)

// graph has the calls in the module.
type graph struct {
	*source.World
	funcs map[*types.Func]*function
	types []*types.Named              // types of the module, to find implementations of interfaces
	sole  map[*types.Func]*types.Func // by method of an interface: its only implementation in the module, or itself
}

// function is a function or method of the module, or a method of an interface.
type function struct {
	fn      *types.Func
	locks   map[string]string // the exclusive locks of its directives, by class; the values are the keys as spelled
	wraps   bool              // lockgen wrote it
	byHand  bool              // it takes a lock itself, or asks whether one is held
	writes  bool
	calls   []*call
	callers []*call

	must, may map[string]string // the locks that it certainly runs under, and may run under
	mayAny    bool              // whether it may run under others
	reached   bool
}

// call is a call, or a function that is used as a value.
type call struct {
	from, to *function
	pos      token.Pos
	later    bool // in a go statement or used as a value, so it may run later
	fresh    bool // on a value that was made in the same function
	keyed    bool // an argument comes from a parameter that the caller's key names
}

func (g *graph) function(fn *types.Func) *function {
	fn = fn.Origin()
	f := g.funcs[fn]
	if f == nil {
		f = &function{fn: fn}
		g.funcs[fn] = f
	}
	return f
}

// collect reads all packages, without their tests.
func (g *graph) collect() {
	var units []*source.Unit
	for _, u := range g.Units {
		if u.Listed.ID != u.Listed.PkgPath || strings.HasSuffix(u.Listed.PkgPath, "_test") {
			continue
		}
		units = append(units, u)
		for _, name := range u.Pkg.Scope().Names() {
			if t, ok := u.Pkg.Scope().Lookup(name).(*types.TypeName); ok && !t.IsAlias() {
				if named, ok := t.Type().(*types.Named); ok && !types.IsInterface(named) && named.TypeParams().Len() == 0 {
					g.types = append(g.types, named)
				}
			}
		}
	}
	for _, u := range units {
		for _, file := range u.Files {
			g.file(u, file)
		}
	}
	for again := true; again; {
		again = false
		for _, f := range g.funcs {
			for _, c := range f.calls {
				if c.to.writes && !f.writes && passesOn(f, c.to) {
					f.writes, again = true, true
				}
			}
		}
	}
}

// passesOn reports whether a write of the called function counts as a write of f. It does for a
// method of the same type, and for a function that takes a context. A counter that f increments
// does not count.
func passesOn(f, callee *function) bool {
	a, b := f.fn.Signature().Recv(), callee.fn.Signature().Recv()
	return takesContext(callee) || a != nil && b != nil && types.Identical(a.Type(), b.Type())
}

func takesContext(f *function) bool {
	params := f.fn.Signature().Params()
	return params.Len() > 0 && facts.IsContext(params.At(0).Type())
}

func (g *graph) file(u *source.Unit, file *ast.File) {
	annotated, _ := generator.ReadDirectives(g.Fset, file)
	for _, a := range annotated {
		fn, ok := u.Info.Defs[a.Name].(*types.Func)
		if !ok {
			continue
		}
		f := g.function(fn)
		f.locks = map[string]string{}
		for _, d := range a.Directives {
			if !d.Read && d.Permits == 0 {
				f.locks[class(&d)] = d.Key
			}
		}
	}
	generated := facts.IsGenerated(file)
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		fn, ok := u.Info.Defs[decl.Name].(*types.Func)
		if !ok {
			continue
		}
		f := g.function(fn)
		f.wraps = generated
		b := &body{g, u, f, decl, keyParameters(u, decl, annotated)}
		ast.PreorderStack(decl.Body, nil, func(n ast.Node, stack []ast.Node) bool {
			b.visit(n, stack)
			return true
		})
	}
}

// keyParameters returns the parameters of a declaration that its directives name.
func keyParameters(u *source.Unit, decl *ast.FuncDecl, annotated []generator.Annotated) map[types.Object]bool {
	out := map[types.Object]bool{}
	for _, a := range annotated {
		if a.Name != decl.Name {
			continue
		}
		for _, d := range a.Directives {
			for _, part := range d.Parts {
				for _, field := range decl.Type.Params.List {
					for _, name := range field.Names {
						if len(part.Path) > 0 && name.Name == part.Path[0] {
							out[u.Info.Defs[name]] = true
						}
					}
				}
			}
		}
	}
	return out
}

// isKeyed reports whether an expression contains a value that the key names.
func (b *body) isKeyed(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && b.key[b.unit.Info.Uses[id]] {
			found = true
		}
		return !found
	})
	return found
}

// derive records variables that get a value which the key names.
func (b *body) derive(n *ast.AssignStmt) {
	if !slices.ContainsFunc(n.Rhs, b.isKeyed) {
		return
	}
	for _, left := range n.Lhs {
		if id, ok := left.(*ast.Ident); ok && b.unit.Info.Defs[id] != nil {
			b.key[b.unit.Info.Defs[id]] = true
		}
	}
}

// class returns what all keys of a directive have in common.
func class(d *generator.Directive) string {
	var b strings.Builder
	b.WriteString(d.Backend)
	for _, p := range d.Parts {
		b.WriteByte(0)
		b.WriteString(p.Literal)
	}
	return b.String()
}

// body is a function that is being read.
type body struct {
	*graph
	unit *source.Unit
	f    *function
	decl *ast.FuncDecl
	key  map[types.Object]bool // parameters that the key names, and variables made from them
}

func (b *body) visit(n ast.Node, stack []ast.Node) {
	info := b.unit.Info
	switch n := n.(type) {
	case *ast.AssignStmt:
		b.derive(n)
		for _, left := range n.Lhs {
			b.f.writes = b.f.writes || n.Tok != token.DEFINE && b.isState(left)
		}
	case *ast.IncDecStmt:
		b.f.writes = b.f.writes || b.isState(n.X)
	case *ast.CallExpr:
		if fn, ok := typeutil.Callee(info, n).(*types.Builtin); ok && (fn.Name() == "delete" || fn.Name() == "clear") && b.isState(n.Args[0]) {
			b.f.writes = true
		}
	case *ast.Ident:
		fn, ok := info.Uses[n].(*types.Func)
		if !ok || fn.Pkg() == nil {
			return
		}
		if fn.Pkg().Path() == generator.RuntimePath {
			b.f.byHand = true
		}
		if lostctx.IsWriter(fn) || fn.Pkg().Path() == "database/sql" && fn.Name() == "Exec" {
			b.f.writes = true
		}
		b.call(n, fn, stack)
	}
}

// call records that a function is called, or used as a value.
func (b *body) call(id *ast.Ident, fn *types.Func, stack []ast.Node) {
	if recv := fn.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		fn = b.implementation(fn)
	}
	if fn.Pkg() == nil || !strings.HasPrefix(fn.Pkg().Path(), b.unit.Listed.Module.Path) { // a method of an embedded error, or of another module
		return
	}
	c := &call{from: b.f, to: b.function(fn), pos: id.Pos(), later: true}
	var e ast.Node = id
	callee := true // as long as e is the function of a call
	for i := len(stack) - 1; i >= 0; i-- {
		switch p := stack[i].(type) {
		case *ast.GoStmt:
			c.later = true
			i = 0
		case *ast.CallExpr:
			if callee && p.Fun == e {
				c.later = false
				c.keyed = slices.ContainsFunc(p.Args, b.isKeyed)
			}
			callee = false
		case *ast.SelectorExpr:
			callee = callee && p.Sel == e
			if callee {
				c.fresh = b.isFresh(p.X)
			}
		case *ast.ParenExpr, *ast.IndexExpr, *ast.IndexListExpr:
		default:
			callee = false
		}
		e = stack[i]
	}
	b.f.calls = append(b.f.calls, c)
	c.to.callers = append(c.to.callers, c)
}

// implementation returns the only method of the module that implements a method of an
// interface. If there is none or more than one, it returns the interface's method.
func (g *graph) implementation(fn *types.Func) *types.Func {
	fn = fn.Origin()
	if known := g.sole[fn]; known != nil {
		return known
	}
	g.sole[fn] = fn
	if found := g.implementations(fn); len(found) == 1 {
		g.sole[fn] = found[0]
	}
	return g.sole[fn]
}

// implementations returns the methods of the module that implement a method of an interface.
func (g *graph) implementations(fn *types.Func) []*types.Func {
	i, ok := fn.Signature().Recv().Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var found []*types.Func
	for _, t := range g.types {
		if !types.Implements(t, i) && !types.Implements(types.NewPointer(t), i) || isWrapper(t) {
			continue
		}
		obj, _, _ := types.LookupFieldOrMethod(types.NewPointer(t), true, fn.Pkg(), fn.Name())
		if m, ok := obj.(*types.Func); ok {
			found = append(found, m.Origin())
		}
	}
	return found
}

// isWrapper reports whether lockgen wrote a type.
func isWrapper(t *types.Named) bool {
	base, ok := strings.CutSuffix(t.Obj().Name(), "WithLock")
	return ok && t.Obj().Pkg().Scope().Lookup(base) != nil
}
