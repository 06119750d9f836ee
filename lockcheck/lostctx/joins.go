package lostctx

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// path names a value: a variable, and the fields that lead from it to the value.
type path struct {
	root   types.Object
	fields string // ".pool.done"
}

// wait is a place where the method waits for something.
type wait struct {
	node   ast.Node
	on     []path
	slot   bool // it takes a slot of a semaphore; it waits only for starts above it
	always bool // it waits for the end of the context, so for all code that uses it
}

// deepest bounds the depth to which calls and variables are followed.
const deepest = 4

// related reports whether a path of a may contain, or be part of, a path of b.
func related(a, b []path) bool {
	for _, x := range a {
		for _, y := range b {
			if x.root == y.root && (leads(x.fields, y.fields) || leads(y.fields, x.fields)) {
				return true
			}
		}
	}
	return false
}

func leads(fields, to string) bool {
	rest, ok := strings.CutPrefix(to, fields)
	return ok && (rest == "" || rest[0] == '.')
}

// pathOf returns the value that an expression names, if it names one.
func (c *checker) pathOf(e ast.Expr) (path, bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := c.pass.TypesInfo.ObjectOf(e).(*types.Var)
		return path{root: v}, ok
	case *ast.SelectorExpr:
		if v, ok := c.pass.TypesInfo.Uses[e.Sel].(*types.Var); ok && !v.IsField() {
			return path{root: v}, true // a variable of another package
		}
		p, ok := c.pathOf(e.X)
		if sel := c.pass.TypesInfo.Selections[e]; ok && sel != nil && sel.Kind() == types.FieldVal {
			p.fields += "." + e.Sel.Name
		}
		return p, ok
	case *ast.StarExpr:
		return c.pathOf(e.X)
	case *ast.UnaryExpr:
		return c.pathOf(e.X)
	case *ast.IndexExpr:
		return c.pathOf(e.X)
	case *ast.CallExpr:
		if sel, ok := ast.Unparen(e.Fun).(*ast.SelectorExpr); ok {
			return c.pathOf(sel.X)
		}
	}
	return path{}, false
}

// mentions lists the values in code that a goroutine may signal its end with. These are no
// contexts, numbers or strings. It follows variables to the values assigned to them, and
// calls into functions of this package.
func (c *checker) mentions(n ast.Node, depth int) []path {
	var out []path
	if depth > deepest {
		return nil
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if inner, ok := c.inside(n, func(body ast.Node) []path { return c.mentions(body, depth+1) }); ok {
				out = append(out, inner...)
				for _, arg := range n.Args {
					if _, isLit := ast.Unparen(arg).(*ast.FuncLit); isLit || canEnd(c.pass.TypesInfo.TypeOf(arg)) {
						out = append(out, c.mentions(arg, depth)...)
					}
				}
				return false
			}
		case *ast.SelectorExpr:
			if p, ok := c.pathOf(n); ok && !facts.IsContext(p.root.Type()) {
				out = append(out, p)
				out = append(out, c.assigned(n, depth)...)
				return false
			}
		case *ast.Ident:
			v, ok := c.pass.TypesInfo.Uses[n].(*types.Var)
			if !ok || v.IsField() || facts.IsContext(v.Type()) || isPlain(v.Type()) {
				return true
			}
			out = append(out, path{root: v})
			out = append(out, c.assigned(n, depth)...)
		}
		return true
	})
	return out
}

// assigned returns what is mentioned by the value of the variable with which e begins.
func (c *checker) assigned(e ast.Expr, depth int) []path {
	for {
		sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
		if !ok {
			break
		}
		e = sel.X
	}
	from := c.Scope.Source(e)
	if from == ast.Unparen(e) {
		return nil
	}
	return c.mentions(from, depth+1)
}

func isPlain(t types.Type) bool {
	_, basic := t.Underlying().(*types.Basic)
	return basic || types.Identical(t, types.Universe.Lookup("error").Type())
}

// inside looks into the body of a called function of this package. In the result the arguments
// of the call replace the receiver and the parameters.
func (c *checker) inside(call *ast.CallExpr, look func(body ast.Node) []path) ([]path, bool) {
	fn := facts.Callee(c.pass.TypesInfo, call)
	decl := c.decls[fn]
	if decl == nil || c.entered[decl] {
		return nil, false
	}
	c.entered[decl] = true
	defer delete(c.entered, decl)
	given := map[types.Object]ast.Expr{}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && decl.Recv != nil {
		c.give(given, decl.Recv, []ast.Expr{sel.X})
	}
	c.give(given, decl.Type.Params, call.Args)
	var out []path
	for _, p := range look(decl.Body) {
		arg := given[p.root]
		switch v, isVar := p.root.(*types.Var); {
		case arg != nil:
			if at, ok := c.pathOf(arg); ok {
				out = append(out, path{at.root, at.fields + p.fields})
				out = append(out, c.assigned(arg, 0)...)
			}
		case isVar && v.Pkg() != nil && v.Parent() == v.Pkg().Scope():
			out = append(out, p)
		}
	}
	return out, true
}

func (c *checker) give(given map[types.Object]ast.Expr, list *ast.FieldList, args []ast.Expr) {
	i := 0
	for _, f := range list.List {
		for _, name := range f.Names {
			if i < len(args) {
				given[c.pass.TypesInfo.Defs[name]] = args[i]
			}
			i++
		}
		if len(f.Names) == 0 {
			i++
		}
	}
}

// waits lists the places where code waits, without the goroutines that it starts.
func (c *checker) waits(body ast.Node, depth int) []wait {
	var out []wait
	inSelect := map[ast.Node]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.CommClause:
			if n.Comm == nil { // default
				break
			}
			ast.Inspect(n.Comm, func(n ast.Node) bool {
				inSelect[n] = true
				return true
			})
		case *ast.UnaryExpr:
			if n.Op != token.ARROW {
				break
			}
			if c.isDone(n.X) {
				if !inSelect[n] {
					out = append(out, wait{node: n, always: true})
				}
				return false
			}
			out = append(out, wait{node: n, on: c.mentions(n.X, 0)})
		case *ast.RangeStmt:
			if isChan(c.pass.TypesInfo.TypeOf(n.X)) {
				out = append(out, wait{node: n.X, on: c.mentions(n.X, 0)})
			}
		case *ast.SendStmt: // it may fill all slots of a semaphore
			if t, ok := c.pass.TypesInfo.TypeOf(n.Chan).Underlying().(*types.Chan); ok && types.Identical(t.Elem().Underlying(), types.NewStruct(nil, nil)) {
				out = append(out, wait{node: n, on: c.mentions(n.Chan, 0), slot: true})
			}
		case *ast.CallExpr:
			if startsGoroutine(facts.Callee(c.pass.TypesInfo, n)) {
				return false
			}
			out = append(out, c.waitsIn(n, depth)...)
		}
		return true
	})
	return out
}

// isDone reports whether e is the Done channel of a context.
func (c *checker) isDone(e ast.Expr) bool {
	call, ok := c.Scope.Source(e).(*ast.CallExpr)
	fn := facts.Callee(c.pass.TypesInfo, orEmpty(call))
	return ok && fn != nil && fn.FullName() == "(context.Context).Done"
}

func orEmpty(call *ast.CallExpr) *ast.CallExpr {
	if call == nil {
		return &ast.CallExpr{Fun: &ast.Ident{}}
	}
	return call
}

func isChan(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Chan)
	return ok
}

// waitsIn returns what a call waits for: by the name of the method, by what the function does,
// or, if the function is unknown, by its arguments.
func (c *checker) waitsIn(call *ast.CallExpr, depth int) []wait {
	fn := facts.Callee(c.pass.TypesInfo, call)
	if fn == nil || depth > deepest {
		return nil
	}
	var out []wait
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && waitsByName(fn) {
		on := c.mentions(sel.X, 0)
		for _, arg := range call.Args {
			on = append(on, c.mentions(arg, 0)...)
		}
		return []wait{{node: call, on: on, slot: strings.Contains(fn.Name(), "Acquire")}}
	}
	inner, known := c.inside(call, func(body ast.Node) []path {
		var all []path
		for _, w := range c.waits(body, depth+1) {
			all = append(all, w.on...)
		}
		return all
	})
	if known {
		return append(out, wait{node: call, on: inner})
	}
	for _, arg := range call.Args {
		if canEnd(c.pass.TypesInfo.TypeOf(arg)) {
			out = append(out, wait{node: call, on: c.mentions(arg, 0), slot: true})
		}
	}
	return out
}

// waitsByName reports whether a method waits for its receiver, to judge by its name. A limiter
// does not, because it waits for time.
func waitsByName(fn *types.Func) bool {
	if fn.Pkg() == nil || fn.Pkg().Path() == "golang.org/x/time/rate" || facts.IsLocker(fn, "Acquire") {
		return false
	}
	for _, word := range []string{"Wait", "wait", "Join", "join", "Acquire"} {
		if strings.Contains(fn.Name(), word) {
			return true
		}
	}
	return false
}

// canEnd reports whether code that is given a value of type t can wait for it.
func canEnd(t types.Type) bool {
	if t == nil || facts.IsContext(t) {
		return false
	}
	if isChan(t) {
		return true
	}
	wait, _, _ := types.LookupFieldOrMethod(t, true, nil, "Wait")
	_, ok := wait.(*types.Func)
	return ok
}
