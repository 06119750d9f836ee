package migrate

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/lockgen/lockgen/generator"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
	"github.com/lockgen/lockgen/lockcheck/internal/source"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// migration is one call of Run.
type migration struct {
	*source.World
	opts    Options
	wraps   map[string]*wrapped // by import path and name; nil if there is no wrapper
	nodes   map[nodeID]*node
	uses    []*use
	makers  []*maker
	valued  map[token.Pos]bool                  // functions that are used as values, by the position of their declaration
	dynamic map[string]bool                     // methods of interfaces that are asserted
	guards  map[token.Pos][]generator.Directive // the directives of annotated functions, by the position of the declaration
	ignores map[*ast.File][]facts.Ignore
	seen    map[seenKey]bool
	why     map[*node]string // why a node is left as it is
	pushed  map[*node]bool   // nodes that become a wrapper because no Locker is in scope where their value goes
	changes []*change
	left    []Left
	raw     map[module.Place]bool    // places where something is called, or becomes an interface, without its lock
	tuples  map[module.Place][]*node // the results of calls that have several, by their places
}

// nodeID is the position of a variable's declaration, or of a function's and the number of a
// result.
type nodeID struct {
	pos    token.Pos
	result int // -1 for a variable
}

// node is a variable, field or parameter that holds a *T, or a result of a function.
type node struct {
	id       nodeID
	name     string
	t        *wrapped
	value    bool       // it holds a T itself
	receiver bool       // it is the receiver of a method of T
	text     *ast.Ident // the T of its type; nil if the type is inferred
	fixed    string     // why its type can't be changed
	siblings []*node    // nodes declared with the same text
	isNil    bool       // it is compared with nil
	owner    token.Pos  // the function whose parameter or result it is
	method   string     // the name of the owner, if it is a method
	chosen   bool       // it becomes a *TWithLock
	group    *node      // the root of the nodes that must be rewritten together; nil if that is the node itself
}

// declare records the variables that a file declares.
func (m *migration) declare(u *source.Unit, file *ast.File) {
	fixed := ""
	switch path := m.path(file); {
	case facts.IsGenerated(file):
		fixed = "belongs to generated code"
	case !m.Asked[path]:
		fixed = "is outside of the packages that are migrated"
	}
	annotated, _ := generator.ReadDirectives(m.Fset, file)
	for _, a := range annotated {
		m.guards[a.Name.Pos()] = a.Directives
	}
	d := &declarer{migration: m, unit: u, fixed: fixed}
	owned := map[*ast.FuncType]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			owned[n.Type] = true
			d.owner = n.Name.Pos()
			if n.Recv != nil {
				d.method = n.Name.Name
			}
			d.receiver(n)
			d.list(n.Type.Params, "")
			d.results(n)
			d.owner, d.method = token.NoPos, ""
		case *ast.FuncType:
			if !owned[n] {
				d.list(n.Params, "is a parameter of a function whose callers aren't known")
				d.list(n.Results, "is a named result")
			}
		case *ast.StructType:
			d.list(n.Fields, "")
		case *ast.ValueSpec:
			d.names(n.Names, n.Type, "")
		case *ast.AssignStmt:
			for _, lhs := range n.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && n.Tok == token.DEFINE {
					d.names([]*ast.Ident{id}, nil, "")
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					d.names([]*ast.Ident{id}, nil, "is an element of what is ranged over")
				}
			}
		}
		return true
	})
}

type declarer struct {
	*migration
	unit   *source.Unit
	fixed  string    // for the whole file
	owner  token.Pos // the function that is declared
	method string    // its name, if it is a method
}

func (d *declarer) receiver(decl *ast.FuncDecl) {
	d.list(decl.Recv, "is the receiver")
	if decl.Recv == nil || len(decl.Recv.List) != 1 || len(decl.Recv.List[0].Names) != 1 {
		return
	}
	if n := d.nodes[nodeID{decl.Recv.List[0].Names[0].Pos(), -1}]; n != nil {
		n.receiver = true
	}
}

// list declares fields or parameters.
func (d *declarer) list(fields *ast.FieldList, fixed string) {
	if fields == nil {
		return
	}
	for _, f := range fields.List {
		why := fixed
		switch _, variadic := f.Type.(*ast.Ellipsis); {
		case variadic:
			continue
		case f.Tag != nil && why == "":
			why = "has a tag, so that other code sets it"
		}
		d.names(f.Names, f.Type, why)
	}
}

func (d *declarer) results(decl *ast.FuncDecl) {
	if decl.Type.Results == nil {
		return
	}
	d.list(decl.Type.Results, "is a named result")
	i := 0
	for _, f := range decl.Type.Results.List {
		fixed := d.fixed
		if len(f.Names) > 0 {
			fixed = "is a named result"
		}
		for range max(len(f.Names), 1) {
			d.node(nodeID{decl.Name.Pos(), i}, "the result of "+decl.Name.Name, d.unit.Info.TypeOf(f.Type), f.Type, fixed)
			i++
		}
	}
}

// names declares variables, all with the type that text spells.
func (d *declarer) names(names []*ast.Ident, text ast.Expr, fixed string) {
	if d.fixed != "" {
		fixed = d.fixed
	}
	var all []*node
	for _, id := range names {
		if v, ok := d.unit.Info.Defs[id].(*types.Var); ok {
			if n := d.node(nodeID{id.Pos(), -1}, id.Name, v.Type(), text, fixed); n != nil {
				all = append(all, n)
			}
		}
	}
	for _, n := range all {
		n.siblings = all
	}
}

func (d *declarer) node(id nodeID, name string, t types.Type, text ast.Expr, fixed string) *node {
	of, pointer := d.of(t)
	if of == nil {
		return nil
	}
	if n := d.nodes[id]; n != nil {
		return n
	}
	n := &node{id: id, name: name, t: of, value: !pointer, fixed: fixed, owner: d.owner, method: d.method}
	switch {
	case n.fixed != "":
	case text != nil && !pointer:
		n.fixed = "holds a " + of.name.Name() + ", not a pointer to one"
	case text != nil:
		if n.text = identOf(text); n.text == nil || n.text.Name != of.name.Name() {
			n.fixed = "has a type of another name"
		}
	}
	d.nodes[id] = n
	return n
}

// identOf returns the T in *T, *pkg.T or *T[int].
func identOf(text ast.Expr) *ast.Ident {
	star, ok := ast.Unparen(text).(*ast.StarExpr)
	if !ok {
		return nil
	}
	e := ast.Unparen(star.X)
	switch x := e.(type) {
	case *ast.IndexExpr:
		e = x.X
	case *ast.IndexListExpr:
		e = x.X
	}
	switch x := e.(type) {
	case *ast.Ident:
		return x
	case *ast.SelectorExpr:
		return x.Sel
	}
	return nil
}

// variable returns the node of a variable, or nil.
func (m *migration) variable(v *types.Var) *node {
	if v == nil {
		return nil
	}
	return m.nodes[nodeID{v.Origin().Pos(), -1}]
}

func (m *migration) result(fn *types.Func, i int) *node {
	return m.nodes[nodeID{fn.Origin().Pos(), i}]
}

func (m *migration) path(file *ast.File) string { return m.Fset.Position(file.FileStart).Filename }

func (m *migration) isTest(file *ast.File) bool { return strings.HasSuffix(m.path(file), "_test.go") }

func (m *migration) place(pos token.Pos) module.Place {
	at := m.Fset.Position(pos)
	return module.Place{File: at.Filename, Line: at.Line, Column: at.Column}
}

// leave records that a place is left as it is.
func (m *migration) leave(pos token.Pos, message string) {
	at := m.place(pos)
	m.left = append(m.left, Left{at.File, at.Line, at.Column, message})
}
