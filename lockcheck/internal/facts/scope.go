package facts

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
)

// Scope finds where the values of expressions in one function come from, by following assignments.
// A value that it can't follow counts as harmless.
type Scope struct {
	info    *types.Info
	params  map[types.Object]string     // the parameters of the declaration: "p0", …, "r"
	inner   map[types.Object]bool       // parameters of function literals
	sources map[types.Object][]ast.Expr // what is assigned to a variable; nil if that is unclear
	zero    map[types.Object]bool       // declared without a value
	kept    map[types.Object]bool       // fields that may have a context of a lock
	parts   map[types.Object]bool       // variables with a field or element that is assigned to, or a method that is called
}

// ScopeOf reads the assignments of a declaration.
func (ix *Index) ScopeOf(info *types.Info, decl *ast.FuncDecl) *Scope {
	s := &Scope{info: info, kept: ix.kept, params: map[types.Object]string{}, inner: map[types.Object]bool{}, sources: map[types.Object][]ast.Expr{},
		zero: map[types.Object]bool{}, parts: map[types.Object]bool{}}
	if decl.Recv != nil {
		for _, f := range decl.Recv.List {
			for _, name := range f.Names {
				s.params[info.Defs[name]] = "r"
			}
		}
	}
	i := 0
	for _, f := range decl.Type.Params.List {
		for _, name := range f.Names {
			s.params[info.Defs[name]] = "p" + strconv.Itoa(i)
			i++
		}
		if len(f.Names) == 0 {
			i++
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		s.note(n)
		return true
	})
	return s
}

func (s *Scope) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, lhs := range n.Lhs {
			from := n.Rhs[0]
			if len(n.Rhs) == len(n.Lhs) {
				from = n.Rhs[i]
			}
			if n.Tok != token.ASSIGN && n.Tok != token.DEFINE {
				from = nil
			}
			s.assign(lhs, from)
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			s.zero[s.info.Defs[name]] = len(n.Values) == 0
			switch {
			case len(n.Values) == len(n.Names):
				s.assign(name, n.Values[i])
			case len(n.Values) == 1:
				s.assign(name, n.Values[0])
			}
		}
	case *ast.RangeStmt:
		s.assign(n.Key, nil)
		s.assign(n.Value, nil)
	case *ast.IncDecStmt:
		s.assign(n.X, nil)
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && !IsContext(s.info.TypeOf(id)) {
				s.assign(id, nil) // code with its address may write to it
			}
		}
	case *ast.SelectorExpr:
		if id, ok := ast.Unparen(n.X).(*ast.Ident); ok {
			s.parts[s.info.ObjectOf(id)] = true
		}
	case *ast.IndexExpr:
		if id, ok := ast.Unparen(n.X).(*ast.Ident); ok {
			s.parts[s.info.ObjectOf(id)] = true
		}
	case *ast.FuncLit:
		for _, f := range n.Type.Params.List {
			for _, name := range f.Names {
				s.inner[s.info.Defs[name]] = true
			}
		}
	}
}

func (s *Scope) assign(lhs, from ast.Expr) {
	id, ok := lhs.(*ast.Ident)
	if !ok {
		return
	}
	if obj := s.info.ObjectOf(id); obj != nil {
		s.sources[obj] = append(s.sources[obj], from)
	}
}

// Source returns the expression that is assigned to a local variable, if there is only one.
func (s *Scope) Source(e ast.Expr) ast.Expr {
	for range 10 {
		e = ast.Unparen(e)
		id, ok := e.(*ast.Ident)
		if !ok {
			return e
		}
		from := s.sources[s.info.ObjectOf(id)]
		if len(from) != 1 || from[0] == nil || s.params[s.info.ObjectOf(id)] != "" {
			return e
		}
		e = from[0]
	}
	return e
}

// Zero reports whether e is a local variable that is declared without a value and never gets one,
// in whole or in part.
func (s *Scope) Zero(e ast.Expr) bool {
	id, ok := s.Source(e).(*ast.Ident)
	if !ok {
		return false
	}
	obj := s.info.ObjectOf(id)
	return s.zero[obj] && len(s.sources[obj]) == 0 && !s.parts[obj]
}

// Assigned lists what is assigned to a variable. A nil element is an unclear value.
func (s *Scope) Assigned(obj types.Object) []ast.Expr { return s.sources[obj] }

// Canonical returns a text that is the same for two expressions only if their values are the
// same: "p1.Customer.ID", "=42". It returns "?" if nothing is known.
func (s *Scope) Canonical(e ast.Expr) string {
	if tv, ok := s.info.Types[e]; ok && tv.Value != nil {
		return "=" + tv.Value.ExactString()
	}
	e = s.Source(e)
	if tv, ok := s.info.Types[e]; ok && tv.Value != nil {
		return "=" + tv.Value.ExactString()
	}
	switch e := e.(type) {
	case *ast.Ident:
		obj := s.info.ObjectOf(e)
		if p := s.params[obj]; p != "" && len(s.sources[obj]) == 0 {
			return p
		}
	case *ast.SelectorExpr:
		if sel := s.info.Selections[e]; sel != nil && sel.Kind() != types.MethodExpr {
			if x := s.Canonical(e.X); x != "?" {
				return x + "." + e.Sel.Name
			}
		}
	case *ast.StarExpr:
		return s.Canonical(e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return s.Canonical(e.X)
		}
	case *ast.CallExpr:
		if tv := s.info.Types[e.Fun]; tv.IsType() && len(e.Args) == 1 {
			return s.Canonical(e.Args[0])
		}
		if _, ok := ast.Unparen(e.Fun).(*ast.SelectorExpr); ok && len(e.Args) == 0 {
			return s.Canonical(e.Fun)
		}
	}
	return "?"
}

// LostArgument returns the context that a call passes, such as "context.Background()", if it
// certainly owns no lock, and otherwise "".
func (s *Scope) LostArgument(call *ast.CallExpr) string {
	if arg := contextArgument(s.info, call); arg != nil {
		lost, _ := s.Lost(arg)
		return lost
	}
	return ""
}

func contextArgument(info *types.Info, call *ast.CallExpr) ast.Expr {
	for _, arg := range call.Args {
		if IsContext(info.TypeOf(arg)) {
			return arg
		}
	}
	return nil
}

// Lost describes a context that certainly owns no lock. owned reports that the context comes from a
// parameter.
func (s *Scope) Lost(e ast.Expr) (lost string, owned bool) { return s.lost(e, 10, false) }

// Ends reports whether a context comes from a parameter and is cancelled with it. A context of
// lock.Detach is, although it owns no lock.
func (s *Scope) Ends(e ast.Expr) bool {
	lost, ends := s.lost(e, 10, true)
	return ends && lost == ""
}

// lost follows a context to its origin; if detached is set, through lock.Detach as well.
func (s *Scope) lost(e ast.Expr, depth int, detached bool) (lost string, owned bool) {
	if depth == 0 {
		return "", false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return s.lostIdent(e, depth, detached)
	case *ast.SelectorExpr:
		obj := s.info.ObjectOf(e.Sel) // an exported field may be set by another package, under a lock
		if id, ok := ast.Unparen(e.X).(*ast.Ident); ok && s.params[s.info.ObjectOf(id)] == "r" && isField(obj) && !obj.Exported() && !s.kept[origin(obj)] {
			return "the field " + types.ExprString(e), false
		}
		if isPackageVar(obj) {
			return "the variable " + types.ExprString(e), false
		}
	case *ast.CallExpr:
		fn := Callee(s.info, e)
		if fn != nil && fn.Pkg() != nil && fn.Pkg().Path() == "context" {
			switch fn.Name() {
			case "Background", "TODO", "WithoutCancel":
				return "context." + fn.Name() + "(" + argument(e) + ")", false
			}
		}
		if IsRuntime(fn, "Detach") && !detached {
			return "lock.Detach(" + argument(e) + ")", false
		}
		if arg := contextArgument(s.info, e); arg != nil {
			return s.lost(arg, depth-1, detached)
		}
	}
	return "", false
}

// Request returns the text of a context that comes from an *http.Request in a parameter. It was
// made before any lock of the function.
func (s *Scope) Request(e ast.Expr) string {
	for range 10 {
		call, ok := s.Source(e).(*ast.CallExpr)
		if !ok {
			return ""
		}
		fn := Callee(s.info, call)
		if fn == nil {
			return ""
		}
		if fn.FullName() != "(*net/http.Request).Context" {
			if e = contextArgument(s.info, call); e == nil {
				return ""
			}
			continue
		}
		sel, _ := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		id, ok := ast.Unparen(sel.X).(*ast.Ident)
		if obj := s.info.ObjectOf(id); ok && s.params[obj] != "" && len(s.sources[obj]) == 0 {
			return types.ExprString(call)
		}
		return ""
	}
	return ""
}

func argument(call *ast.CallExpr) string {
	if len(call.Args) == 0 {
		return ""
	}
	return types.ExprString(call.Args[0])
}

func (s *Scope) lostIdent(id *ast.Ident, depth int, detached bool) (lost string, owned bool) {
	obj := s.info.ObjectOf(id)
	from := s.sources[obj]
	switch {
	case isPackageVar(obj):
		return "the variable " + id.Name, false
	case s.params[obj] != "" || s.inner[obj]:
		owned = true
	case len(from) == 0:
		return "", false
	}
	for _, e := range from {
		if e == nil {
			return "", owned
		}
		l, o := s.lost(e, depth-1, detached)
		if l == "" && !o {
			return "", owned
		}
		owned = owned || o
		if l != "" {
			lost = l
		}
	}
	if owned {
		return "", true
	}
	return lost, false
}

func isField(obj types.Object) bool {
	v, ok := obj.(*types.Var)
	return ok && v.IsField()
}

func isPackageVar(obj types.Object) bool {
	v, ok := obj.(*types.Var)
	return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

// IsContext reports whether t is context.Context.
func IsContext(t types.Type) bool {
	if t == nil {
		return false
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}
