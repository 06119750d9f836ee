package errlost

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// unread reports variables that get the error of a lock, and are assigned again before they
// are read, or never read.
func (c *checker) unread(decl *ast.FuncDecl) {
	u := &uses{checker: c, reads: map[types.Object][]token.Pos{}, hidden: map[types.Object]bool{}, idle: map[*ast.Ident]bool{}}
	u.results(decl)
	ast.Inspect(decl.Body, u.note)
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			u.block(n.List, n == decl.Body)
		case *ast.CaseClause:
			u.block(n.Body, false)
		case *ast.CommClause:
			u.block(n.Body, false)
		}
		return true
	})
}

// uses are the reads of the variables of one function.
type uses struct {
	*checker
	reads  map[types.Object][]token.Pos
	hidden map[types.Object]bool // variables that may be read at any time
	idle   map[*ast.Ident]bool   // uses that are not reads: assignments, also to _
}

// results marks named results, which each return statement reads.
func (u *uses) results(decl *ast.FuncDecl) {
	if decl.Type.Results == nil {
		return
	}
	for _, f := range decl.Type.Results.List {
		for _, name := range f.Names {
			u.hidden[u.pass.TypesInfo.Defs[name]] = true
		}
	}
}

func (u *uses) note(n ast.Node) bool {
	info := u.pass.TypesInfo
	switch n := n.(type) {
	case *ast.FuncLit:
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && info.ObjectOf(id) != nil {
				u.hidden[info.ObjectOf(id)] = true
			}
			return true
		})
	case *ast.UnaryExpr:
		if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && n.Op == token.AND {
			u.hidden[info.ObjectOf(id)] = true
		}
	case *ast.LabeledStmt: // a goto may jump to a read
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				u.hidden[info.ObjectOf(id)] = true
			}
			return true
		})
	case *ast.AssignStmt:
		blank := len(n.Lhs) == 1 && len(n.Rhs) == 1
		for _, lhs := range n.Lhs {
			id, ok := lhs.(*ast.Ident)
			if ok {
				u.idle[id] = true
			}
			blank = blank && ok && id.Name == "_"
		}
		if blank {
			if id, ok := ast.Unparen(n.Rhs[0]).(*ast.Ident); ok {
				u.idle[id] = true
			}
		}
	case *ast.Ident:
		if obj := info.Uses[n]; obj != nil && !u.idle[n] {
			u.reads[obj] = append(u.reads[obj], n.Pos())
		}
	}
	return true
}

// block checks what the next statements do with the error that a statement assigns.
func (u *uses) block(list []ast.Stmt, outermost bool) {
	for i, s := range list {
		assign, ok := s.(*ast.AssignStmt)
		if !ok || len(assign.Rhs) != 1 {
			continue
		}
		of, says := u.tells(assign.Rhs[0])
		id, ok := assign.Lhs[len(assign.Lhs)-1].(*ast.Ident)
		if of == "" || !ok || id.Name == "_" {
			continue
		}
		obj := u.pass.TypesInfo.ObjectOf(id)
		if v, ok := obj.(*types.Var); !ok || u.hidden[obj] || v.Pkg() == nil || v.Parent() == v.Pkg().Scope() {
			continue
		}
		isNew := u.pass.TypesInfo.Defs[id] != nil
		if next := u.overwrites(list[i+1:], obj); next != nil {
			u.report(id, "%s is assigned again on line %d, and no one has looked at the error of %s: %s", id.Name, u.At(next.Pos()).Line, of, says)
		} else if (isNew || outermost) && !slices.ContainsFunc(u.reads[obj], func(at token.Pos) bool { return at > assign.End() }) {
			u.report(id, "no one looks at %s, the error of %s: %s", id.Name, of, says)
		}
	}
}

// overwrites returns the statement that assigns to obj, if no statement before it may read obj
// or leave the block.
func (u *uses) overwrites(list []ast.Stmt, obj types.Object) ast.Stmt {
	for _, s := range list {
		if init := initOf(s); init != nil {
			if reads, writes := u.touches(init, obj); writes && !reads {
				return init
			}
		}
		reads, writes := u.touches(s, obj)
		if _, plain := s.(*ast.AssignStmt); writes && plain && !reads {
			if isBlank(s) {
				continue
			}
			return s
		}
		if reads || writes {
			return nil
		}
	}
	return nil
}

// touches reports whether code reads obj, and whether it assigns to it.
func (u *uses) touches(code ast.Node, obj types.Object) (reads, writes bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if ok && u.pass.TypesInfo.ObjectOf(id) == obj {
			reads, writes = reads || !u.idle[id], writes || u.idle[id]
		}
		return true
	})
	return reads, writes
}

// initOf returns the assignment before the condition of an if or a switch.
func initOf(s ast.Stmt) *ast.AssignStmt {
	var init ast.Stmt
	switch n := s.(type) {
	case *ast.IfStmt:
		init = n.Init
	case *ast.SwitchStmt:
		init = n.Init
	}
	assign, _ := init.(*ast.AssignStmt)
	return assign
}

func isBlank(s ast.Stmt) bool {
	a, ok := s.(*ast.AssignStmt)
	if !ok || len(a.Lhs) != 1 {
		return false
	}
	id, ok := a.Lhs[0].(*ast.Ident)
	return ok && id.Name == "_"
}
