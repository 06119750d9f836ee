package generator

import (
	"go/types"

	"github.com/lockgen/lockgen/templates"
)

var (
	stringer      = oneMethod("String", types.Typ[types.String])
	textMarshaler = oneMethod("MarshalText", types.NewSlice(types.Universe.Lookup("byte").Type()), types.Universe.Lookup("error").Type())
)

// oneMethod builds fmt.Stringer and its like without loading a package.
func oneMethod(name string, results ...types.Type) *types.Interface {
	var vars []*types.Var
	for _, t := range results {
		vars = append(vars, types.NewParam(0, nil, "", t))
	}
	sig := types.NewSignatureType(nil, nil, nil, nil, types.NewTuple(vars...), false)
	return types.NewInterfaceType([]*types.Func{types.NewFunc(0, nil, name, sig)}, nil).Complete()
}

func isTime(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Time" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "time"
}

// basicKind says how a value whose type is a basic one becomes text; of a type
// parameter, if all types that it allows become text alike.
func basicKind(t types.Type) (templates.PartKind, bool) {
	if param, ok := types.Unalias(t).(*types.TypeParam); ok {
		return typeSetKind(param.Constraint().Underlying().(*types.Interface))
	}
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return 0, false
	}
	switch info := b.Info(); {
	case info&types.IsString != 0:
		return templates.Encoded, true
	case info&types.IsBoolean != 0:
		return templates.Bool, true
	case info&types.IsUnsigned != 0:
		return templates.Uint, true
	case info&types.IsInteger != 0:
		return templates.Int, true
	}
	return 0, false
}

// typeSetKind returns the kind that all types of a constraint share. Any of
// its embedded elements may say it; in a union every term must.
func typeSetKind(set *types.Interface) (templates.PartKind, bool) {
	for t := range set.EmbeddedTypes() {
		if kind, ok := elementKind(t); ok {
			return kind, true
		}
	}
	return 0, false
}

func elementKind(t types.Type) (templates.PartKind, bool) {
	union, ok := t.(*types.Union)
	if !ok {
		if iface, ok := t.Underlying().(*types.Interface); ok && !isTypeParam(t) {
			return typeSetKind(iface)
		}
		return basicKind(t)
	}
	var all templates.PartKind
	for i := range union.Len() {
		kind, ok := elementKind(union.Term(i).Type())
		if !ok || i > 0 && kind != all {
			return 0, false
		}
		all = kind
	}
	return all, true
}
