package generator

import (
	"go/ast"
	"slices"
)

// eachSpec visits the package-level declarations of some files; spec is nil for a function or
// method.
func eachSpec(files []*source, visit func(f *source, d ast.Decl, spec ast.Spec)) {
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		for _, d := range f.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				visit(f, d, nil)
				continue
			}
			for _, s := range g.Specs {
				visit(f, d, s)
			}
		}
	}
}

// importedNames returns the names of the imports in the package's files: the package can't declare
// these.
func (p *pkg) importedNames() *scope {
	out := within()
	for _, f := range p.files {
		for _, s := range f.imports() {
			if s.Name != nil {
				out.add(s.Name.Name)
			} else {
				out.add(guessName(importPath(s)))
			}
		}
	}
	return out
}

// declaredNames returns the package-level names of some files, and where each is declared.
func declaredNames(files []*source) map[string]*ast.Ident {
	out := map[string]*ast.Ident{}
	eachSpec(files, func(_ *source, d ast.Decl, spec ast.Spec) {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			out[s.Name.Name] = s.Name
		case *ast.ValueSpec:
			for _, name := range s.Names {
				out[name.Name] = name
			}
		case nil:
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[fn.Name.Name] = fn.Name
			}
		}
	})
	return out
}

// typeDecl is the declaration of a type, and the file that has it.
type typeDecl struct {
	spec *ast.TypeSpec
	file *source
}

// typeDecls returns the types that some files declare, by name. A type has one declaration for each
// build with its own.
func typeDecls(files []*source) map[string][]typeDecl {
	out := map[string][]typeDecl{}
	eachSpec(files, func(f *source, _ ast.Decl, spec ast.Spec) {
		if s, ok := spec.(*ast.TypeSpec); ok {
			out[s.Name.Name] = append(out[s.Name.Name], typeDecl{s, f})
		}
	})
	return out
}

// index has the declarations of the package, by name. It is built once, when it is first needed: to
// search the files for each of thousands of types takes minutes.
type index struct {
	types   map[string][]typeDecl
	methods map[string][]string  // by type, with aliases followed
	targets map[string][]*target // the annotated declarations: "Type.Method"
}

// typesNamed returns the declarations of a type, one for each build with its own.
func (p *pkg) typesNamed(name string) []typeDecl {
	if p.index.types == nil {
		p.index.types = typeDecls(p.files)
	}
	return p.index.types[name]
}

// methodsOf returns the names of the methods that are declared on a type in all builds.
func (p *pkg) methodsOf(name string) []string {
	if p.index.methods == nil {
		p.index.methods = map[string][]string{}
		eachSpec(p.files, func(_ *source, d ast.Decl, _ ast.Spec) {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				of := p.aliased(baseName(fn.Recv))
				p.index.methods[of] = append(p.index.methods[of], fn.Name.Name)
			}
		})
	}
	return p.index.methods[name]
}

// aliased follows aliases of a type of this package to the type itself. The name of an alias of an
// interface literal stays.
func (p *pkg) aliased(name string) string {
	for range 100 { // the compiler reports an alias of itself
		decls := p.typesNamed(name)
		if len(decls) == 0 || !decls[0].spec.Assign.IsValid() {
			return name
		}
		next := typeName(decls[0].spec.Type)
		if next == "" {
			return name
		}
		name = next
	}
	return name
}

// members returns the names of the fields and methods of a type in all builds, including promoted
// ones that this package declares. Those of other packages are exported, and never collide with
// generated names.
func (p *pkg) members(name string) *scope {
	out, seen := within(), map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		name = p.aliased(name)
		if seen[name] || name == "" {
			return
		}
		seen[name] = true
		for _, decl := range p.typesNamed(name) {
			list := members(decl.spec)
			if list == nil {
				visit(typeName(ast.Unparen(decl.spec.Type))) // type T Other has the fields of Other
				continue
			}
			for _, f := range list.List {
				out.add(identNames(f.Names)...)
				if len(f.Names) == 0 {
					out.add(embeddedName(f.Type))
					visit(typeName(f.Type))
				}
			}
		}
		out.add(p.methodsOf(name)...)
	}
	visit(name)
	return out
}

// members returns the fields of a struct, or the elements of an interface; nil for any other type.
func members(spec *ast.TypeSpec) *ast.FieldList {
	switch t := ast.Unparen(spec.Type).(type) {
	case *ast.StructType:
		return t.Fields
	case *ast.InterfaceType:
		return t.Methods
	}
	return nil
}

// embeds reports whether a type has methods that are promoted from another type.
func embeds(spec *ast.TypeSpec) bool {
	list := members(spec)
	return list != nil && slices.ContainsFunc(list.List, func(f *ast.Field) bool { return len(f.Names) == 0 })
}

// embeddedName returns the name of a field that embeds a type.
func embeddedName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.StarExpr:
		return embeddedName(x.X)
	case *ast.IndexExpr:
		return embeddedName(x.X)
	case *ast.IndexListExpr:
		return embeddedName(x.X)
	}
	return typeName(x)
}

func identNames(list []*ast.Ident) []string {
	var out []string
	for _, id := range list {
		out = append(out, id.Name)
	}
	return out
}

// naming names the package-level declarations of a package's generated files. All units share it:
// one thing has one name in all builds, and two things of one build never share a name. So it uses
// only the files' text.
type naming struct {
	declared *scope           // the user's package-level names, in all builds
	scope    *scope           // these, and the generated ones
	users    *scope           // the parameters and type parameters that generated code repeats
	chosen   map[thing]string // the generated names
}

// thing is a generated declaration that has a name.
type thing struct {
	kind kind
	of   string // its type, method or file
	nth  int    // its number, if there are several directives
}

type kind int

const (
	innerAlias kind = iota // the name under which a type is embedded
	lockerField
	mergerField
	policyVar
	keyFunction
	tickFunction
	forwarder  // calls a function that a parameter hides
	noErrorVar // stands for nil
)

func newNaming(p *pkg) *naming {
	n := &naming{declared: within(), scope: predeclared(), users: within(), chosen: map[thing]string{}}
	for name := range declaredNames(p.files) {
		n.declared.add(name)
	}
	n.scope.addAll(n.declared)
	n.scope.addAll(p.importedNames())
	for _, t := range p.targets {
		for _, list := range []*ast.FieldList{t.recv, t.typ.TypeParams, t.typ.Params, t.typ.Results} {
			n.users.add(fieldNames(list)...)
		}
		for _, decl := range p.typesNamed(p.aliased(t.owner())) {
			n.users.add(fieldNames(decl.spec.TypeParams)...)
		}
		if t.recv != nil && len(t.recv.List) > 0 {
			n.users.add(typeArgNames(t.recv.List[0].Type)...)
		}
	}
	return n
}

// typeArgNames returns the identifiers in the brackets of a receiver.
func typeArgNames(recv ast.Expr) []string {
	var out []string
	ast.Inspect(recv, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr:
			out = append(out, typeName(n.Index))
		case *ast.IndexListExpr:
			for _, x := range n.Indices {
				out = append(out, typeName(x))
			}
		}
		return true
	})
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// pick names a generated declaration that callers do not know. No identifier of the user that
// generated code repeats may hide it.
func (n *naming) pick(t thing, candidates ...string) string {
	if n.chosen[t] == "" {
		n.chosen[t] = within(n.scope, n.users).pick(candidates...)
		n.scope.add(n.chosen[t])
	}
	return n.chosen[t]
}

// pickMember names a generated field, or the field that embeds a type. It hides no field or method
// of the user's type, and none of the generated ones next to it.
func (n *naming) pickMember(t thing, members *scope, beside []string, candidates ...string) string {
	if n.chosen[t] == "" {
		taken := within(n.scope, n.users, members)
		taken.add(beside...)
		n.chosen[t] = taken.pick(candidates...)
	}
	return n.chosen[t]
}

// innerAlias returns the name under which a guarded type is embedded in its wrapper.
func (p *pkg) innerAlias(target string) string {
	alias := p.naming.pickMember(thing{kind: innerAlias, of: target}, p.members(target), nil, lowerFirst(target)+"Inner")
	p.naming.scope.add(alias)
	return alias
}
