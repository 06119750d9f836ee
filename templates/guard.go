package templates

import "github.com/dave/jennifer/jen"

// Guard ties generated code to a signature: it compiles only as long as what it
// was generated from has that signature.
type Guard struct {
	TypeParams []Field // of the type or function, with constraints
	Func       string  // "(*SeckillService).CreateVoucherOrder"
	Type       string  // "func(*SeckillService, context.Context, int64) error"
}

// guards renders the declarations that do not compile when the file is stale. Without them
// it would still compile after a parameter's type was widened, or a result became an
// interface. A directive that was added or changed does not keep the file from compiling,
// because it is a comment, which the compiler does not see: lockgen -check and lockgen vet
// call the file stale.
func (f *File) guards() jen.Code {
	if len(f.Guards) == 0 {
		return jen.Null()
	}
	c := jen.Add(comment("What follows compiles only while the signatures are those that this file was generated from. " +
		"If it does not: go tool lockgen")).Line()
	return c.Add(f.plainGuards()).Add(f.genericGuards())
}

func (f *File) plainGuards() jen.Code {
	var plain []jen.Code
	for _, g := range f.Guards {
		if len(g.TypeParams) == 0 {
			plain = append(plain, g.declaration())
		}
	}
	if len(plain) == 0 {
		return jen.Null()
	}
	return jen.Var().Defs(plain...).Line().Line()
}

// genericGuards stand in functions that nobody calls: only there type
// parameters can be named.
func (f *File) genericGuards() jen.Code {
	c := jen.Null()
	for _, g := range f.Guards {
		if len(g.TypeParams) > 0 {
			c.Func().Add(generic("_", g.TypeParams)).Params().Block(jen.Var().Add(g.declaration())).Line().Line()
		}
	}
	return c
}

func (g Guard) declaration() jen.Code {
	return jen.Id("_").Id(g.Type).Op("=").Id(g.Func)
}
