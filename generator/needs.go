package generator

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
)

// neededImports lists the imports that the directives depend on: those that annotated signatures
// name, and, if a placeholder or merge uses the inside of a type, those that this type names. A
// service imports hundreds of packages; its annotated signatures name two. An import that is left
// out is an error to go/types. This error matters only if it touches an annotated signature, and
// such an import is never left out.
func (u *unit) neededImports() []string {
	n := u.needs()
	for _, m := range u.pkg.targets {
		if !u.has[m.file] {
			continue
		}
		n.target(m)
	}
	if u.whole {
		for _, f := range u.files {
			for _, s := range f.imports() {
				n.paths[importPath(s)] = true
			}
		}
	}
	if u.tested != nil {
		for _, path := range u.tested.neededImports() {
			n.paths[path] = true
		}
		delete(n.paths, u.tested.pkg.path) // the go command would compile it
	}
	return sortedKeys(n.paths)
}

// declared is a package-level declaration and the file whose imports it uses.
type declared struct {
	file *source
	node ast.Node
}

type needs struct {
	run       *run
	paths     map[string]bool
	seen      map[string]bool
	declared  map[string][]declared // by name
	methods   map[string][]declared // by receiver; only methods without parameters
	functions map[string][]declared // functions and methods, by name
}

// needs has the declarations of the build's files, and no import yet.
func (u *unit) needs() *needs {
	n := &needs{run: u.pkg.run, paths: map[string]bool{}, seen: map[string]bool{}, declared: map[string][]declared{}, methods: map[string][]declared{}, functions: map[string][]declared{}}
	for _, f := range u.files {
		n.index(f)
	}
	return n
}

// target visits the declarations from which a wrapper is made.
func (n *needs) target(m *target) {
	roots := map[string]bool{}
	for _, d := range m.directives {
		for _, part := range slices.Concat(d.key.parts, d.tick.parts) {
			if part.isPlaceholder() {
				roots[part.path[0]] = true
			}
		}
		for _, fallback := range n.functions[d.fallback] {
			n.visit(fallback.file, fallback.node, false)
		}
		if d.merge > 0 {
			n.elements(m.typ.Params)
			n.elements(m.typ.Results)
		}
	}
	n.fields(m.file, m.recv, roots)
	if m.typ.TypeParams != nil {
		n.visit(m.file, m.typ.TypeParams, true)
	}
	n.fields(m.file, m.typ.Params, roots)
	n.fields(m.file, m.typ.Results, nil)
	n.guarded(m.owner())
}

func (n *needs) index(f *source) {
	if f.syntax == nil {
		return
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			n.functions[d.Name.Name] = append(n.functions[d.Name.Name], declared{f, d.Type})
			if d.Recv != nil && len(d.Type.Params.List) == 0 {
				name := baseName(d.Recv)
				n.methods[name] = append(n.methods[name], declared{f, d.Type})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					n.declared[s.Name.Name] = append(n.declared[s.Name.Name], declared{f, s})
					n.indexInterface(f, s)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						n.declared[name.Name] = append(n.declared[name.Name], declared{f, s})
					}
				}
			}
		}
	}
}

func (n *needs) indexInterface(f *source, spec *ast.TypeSpec) {
	if iface, ok := ast.Unparen(spec.Type).(*ast.InterfaceType); ok {
		for _, m := range iface.Methods.List {
			for _, id := range m.Names {
				n.functions[id.Name] = append(n.functions[id.Name], declared{f, m.Type})
			}
		}
	}
}

// fields visits parameters or results. If a placeholder starts with one, its type is followed;
// otherwise only its names count.
func (n *needs) fields(f *source, list *ast.FieldList, roots map[string]bool) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		deep := slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return roots[id.Name] })
		n.visit(f, field.Type, deep)
	}
}

// elements visits the definitions of named slices among these, because the wrapper of merged calls
// names the types of their elements.
func (n *needs) elements(list *ast.FieldList) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		n.guarded(typeName(field.Type))
	}
}

// guarded visits what the wrapper repeats of the guarded type: its type parameters, and the types
// that it is defined from or embeds, whose methods the wrapper may wrap again.
func (n *needs) guarded(name string) {
	if name == "" || n.seen["embedded "+name] {
		return
	}
	n.seen["embedded "+name] = true
	for _, d := range n.declared[name] {
		spec, ok := d.node.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if spec.TypeParams != nil {
			n.visit(d.file, spec.TypeParams, true)
		}
		list := members(spec)
		if list == nil { // an alias, or type T Other
			n.visit(d.file, spec.Type, false)
			n.guarded(typeName(ast.Unparen(spec.Type)))
			continue
		}
		for _, field := range list.List {
			if len(field.Names) == 0 {
				n.visit(d.file, field.Type, false)
				n.guarded(typeName(field.Type))
			}
		}
	}
}

// visit records the imports that a type expression names. An alias is always followed, because it
// stands for another type. Other types of the package are followed only if deep is set, because a
// placeholder needs their fields and methods.
func (n *needs) visit(f *source, node ast.Node, deep bool) {
	ast.Inspect(node, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := x.X.(*ast.Ident); ok {
				n.imported(f, pkg.Name)
				return false
			}
		case *ast.Ident:
			if n.declared[x.Name] == nil && token.IsExported(x.Name) {
				n.imported(f, ".")
			}
			n.follow(x.Name, deep)
		}
		return true
	})
}

func (n *needs) follow(name string, deep bool) {
	for _, d := range n.declared[name] {
		spec, isType := d.node.(*ast.TypeSpec)
		if isType && !spec.Assign.IsValid() && !deep {
			continue
		}
		mark := name + " " + strconv.FormatBool(deep)
		if n.seen[mark] {
			return
		}
		n.seen[mark] = true
		n.visit(d.file, d.node, deep)
		for _, m := range n.methods[name] {
			if deep {
				n.visit(m.file, m.node, deep)
			}
		}
	}
}

// imported records the import that a file calls name. If no import is known to have this name, it
// records all imports whose names are not known.
func (n *needs) imported(f *source, name string) {
	var unclear []string
	for _, s := range f.imports() {
		p := importPath(s)
		called, known := n.run.called(s)
		switch {
		case called == name:
			n.paths[p] = true
			if name != "." {
				return
			}
		case !known && name != ".":
			unclear = append(unclear, p)
		}
	}
	for _, p := range unclear {
		n.paths[p] = true
	}
}

// called returns an import's name, and whether that is known. If the import declares no name, the
// name is a guess until the package is loaded.
func (r *run) called(s *ast.ImportSpec) (name string, known bool) {
	if s.Name != nil {
		return s.Name.Name, true
	}
	if told, ok := r.names.Load(importPath(s)); ok {
		return told.(string), true
	}
	return guessName(importPath(s)), false
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// guessName returns the name that a package at p has by convention.
func guessName(p string) string {
	base := path.Base(p)
	if majorVersion.MatchString(base) {
		base = path.Base(path.Dir(p))
	}
	return base
}

func importPath(s *ast.ImportSpec) string {
	p, _ := strconv.Unquote(s.Path.Value) // the parser has accepted it
	return p
}

// baseName returns the receiver's type without pointer and type parameters.
func baseName(recv *ast.FieldList) string {
	if recv == nil || len(recv.List) == 0 {
		return ""
	}
	return typeName(recv.List[0].Type)
}

func typeName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return typeName(x.X)
	case *ast.ParenExpr:
		return typeName(x.X)
	case *ast.IndexExpr:
		return typeName(x.X)
	case *ast.IndexListExpr:
		return typeName(x.X)
	}
	return ""
}
