package generator

import (
	"go/ast"
	"slices"
)

// inPackage are the files that share the package's scope, tests included.
func (p *pkg) inPackage() []*source {
	var out []*source
	for _, f := range slices.Concat(p.files, p.others) {
		if f.syntax != nil && f.syntax.Name.Name == p.name {
			out = append(out, f)
		}
	}
	return out
}

// importedNames are what the package's files call their imports: the package
// can't declare these.
func (p *pkg) importedNames() names {
	out := names{}
	for _, f := range p.inPackage() {
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

// declaredNames are the package-level names and where each is declared.
func (p *pkg) declaredNames() map[string]*ast.Ident {
	out := map[string]*ast.Ident{}
	declare := func(list ...*ast.Ident) {
		for _, name := range list {
			out[name.Name] = name
		}
	}
	for _, f := range p.inPackage() {
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declare(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						declare(s.Name)
					case *ast.ValueSpec:
						declare(s.Names...)
					}
				}
			}
		}
	}
	return out
}
