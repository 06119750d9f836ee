package facts

import (
	"go/ast"
	"go/constant"
	"go/types"
	"time"
)

// sleeps finds how long each function sleeps at least, if the durations are constants. A sleep
// that only some calls reach does not count.
func (c *collector) sleeps(files []*ast.File) {
	decls := map[string]*ast.FuncDecl{}
	for _, file := range files {
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
				if fn, ok := c.pass.TypesInfo.Defs[decl.Name].(*types.Func); ok {
					decls[ID(fn, c.pass.Fset)] = decl
				}
			}
		}
	}
	s := &sleeper{collector: c, decls: decls, known: map[string]time.Duration{}}
	for id := range decls {
		if d := s.of(id); d > 0 && c.own[id] != nil {
			c.own[id].Sleeps = d
		}
	}
}

type sleeper struct {
	*collector
	decls map[string]*ast.FuncDecl
	known map[string]time.Duration
}

func (s *sleeper) of(id string) time.Duration {
	if d, ok := s.known[id]; ok {
		return d
	}
	decl := s.decls[id]
	if decl == nil {
		if f := s.ix.ByID(id); f != nil {
			return f.Sleeps
		}
		return 0
	}
	s.known[id] = 0 // a recursion ends here
	var sum time.Duration
	for _, stmt := range decl.Body.List {
		sum += s.statement(stmt)
		if leaves(stmt) {
			break
		}
	}
	s.known[id] = sum
	return sum
}

// statement returns how long one statement sleeps at least.
func (s *sleeper) statement(stmt ast.Stmt) (sum time.Duration) {
	switch n := stmt.(type) {
	case *ast.IfStmt:
		if n.Init == nil {
			return 0
		}
		stmt = n.Init
	case *ast.ExprStmt, *ast.AssignStmt, *ast.ReturnStmt, *ast.DeferStmt, *ast.DeclStmt:
	default:
		return 0
	}
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.BinaryExpr: // a && b() may not call b
			return false
		case *ast.CallExpr:
			fn := Callee(s.pass.TypesInfo, n)
			if d, ok := Slept(s.pass.TypesInfo, n, fn); ok {
				sum += d
			} else if fn != nil && fn.Pkg() != nil {
				sum += s.of(ID(fn, s.pass.Fset))
			}
		}
		return true
	})
	return sum
}

// Slept returns the duration of a call of time.Sleep, if it is a constant.
func Slept(info *types.Info, call *ast.CallExpr, fn *types.Func) (time.Duration, bool) {
	if fn == nil || fn.FullName() != "time.Sleep" || len(call.Args) != 1 {
		return 0, false
	}
	return Constant(info, call.Args[0])
}

// Constant returns the value of a duration, if it is a constant.
func Constant(info *types.Info, e ast.Expr) (time.Duration, bool) {
	value := info.Types[e].Value
	if value == nil {
		return 0, false
	}
	ns, ok := constant.Int64Val(constant.ToInt(value))
	return time.Duration(ns), ok
}

// leaves reports whether a function may return at a statement although nothing has failed.
func leaves(stmt ast.Stmt) (found bool) {
	if n, ok := stmt.(*ast.IfStmt); ok && n.Else == nil {
		if cond, ok := n.Cond.(*ast.BinaryExpr); ok {
			if id, ok := cond.Y.(*ast.Ident); ok && id.Name == "nil" && cond.Op.String() == "!=" {
				return false
			}
		}
	}
	ast.Inspect(stmt, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt, *ast.BranchStmt:
			found = true
		}
		return !found
	})
	return found
}
