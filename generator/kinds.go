package generator

import (
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

var (
	stringer      = oneMethod("String", types.Typ[types.String])
	textMarshaler = oneMethod("MarshalText", types.NewSlice(types.Universe.Lookup("byte").Type()), types.Universe.Lookup("error").Type())
)

// oneMethod builds an interface such as fmt.Stringer without loading a package.
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

// zoneHint says how to make an instant a key that does not depend on the time zone.
func zoneHint(p part) string {
	if p.each {
		return "pass them in UTC"
	}
	return "say " + strings.TrimSuffix(p.text, ">") + ".UTC>, or .Unix>"
}

// basicKinds returns how a value of a basic type becomes text. For a type parameter it returns how
// the values of all types that it allows do. It returns nil if the values of one of the types do
// not become text.
func basicKinds(t types.Type) []templates.PartKind {
	if param, ok := types.Unalias(t).(*types.TypeParam); ok {
		return typeSetKinds(param.Constraint().Underlying().(*types.Interface))
	}
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return nil
	}
	switch info := b.Info(); {
	case info&types.IsString != 0:
		return []templates.PartKind{templates.Encoded}
	case info&types.IsBoolean != 0:
		return []templates.PartKind{templates.Bool}
	case info&types.IsUnsigned != 0:
		return []templates.PartKind{templates.Uint}
	case info&types.IsInteger != 0:
		return []templates.PartKind{templates.Int}
	}
	return nil
}

// typeSetKinds returns the kinds of the types of a constraint. Each of its embedded elements limits
// them, so the one with the fewest kinds is the most precise.
func typeSetKinds(set *types.Interface) []templates.PartKind {
	var fewest []templates.PartKind
	for t := range set.EmbeddedTypes() {
		if kinds := elementKinds(t); len(kinds) > 0 && (fewest == nil || len(kinds) < len(fewest)) {
			fewest = kinds
		}
	}
	return fewest
}

func elementKinds(t types.Type) []templates.PartKind {
	union, ok := t.(*types.Union)
	if !ok {
		if iface, ok := t.Underlying().(*types.Interface); ok && !isTypeParam(t) {
			return typeSetKinds(iface)
		}
		return basicKinds(t)
	}
	var all []templates.PartKind
	for i := range union.Len() {
		kinds := elementKinds(union.Term(i).Type())
		if len(kinds) == 0 {
			return nil
		}
		all = append(all, kinds...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// basic adds an integer or bool, which needs no encoding, or a string.
func (r *resolver) basic(p part, v value, kind templates.PartKind) {
	if kind != templates.Encoded {
		r.out.parts = append(r.out.parts, templates.Part{Kind: kind, Text: v.text, Type: basicName(v.typ)})
		return
	}
	expr := v.text
	if basicName(v.typ) != "string" {
		expr = "string(" + expr + ")"
	}
	r.encode(p, v, "KeyString", expr)
}

func basicName(t types.Type) string {
	if b, ok := types.Unalias(t).(*types.Basic); ok {
		return types.Typ[b.Kind()].Name()
	}
	return ""
}

// mixed adds a value of a type parameter whose types become text in several ways.
func (r *resolver) mixed(p part, v value, kinds []templates.PartKind) {
	last := lowerFirst(v.lastName())
	text := &templates.Mixed{Name: r.locals.pick(last + "Text"), Value: r.locals.pick(last + "Value"), Expr: v.text, Kinds: kinds}
	r.out.steps = append(r.out.steps, templates.Step{Mixed: text})
	r.encode(p, v, "KeyString", text.Name)
}

// method adds a value by its own method for text, if it has one.
func (r *resolver) method(p part, v value) bool {
	for _, way := range []struct {
		method, function string
		iface            *types.Interface
	}{{"MarshalText", "KeyText", textMarshaler}, {"String", "KeyStringer", stringer}} {
		byAddress := v.addressable && !types.IsInterface(v.typ) && types.Implements(types.NewPointer(v.typ), way.iface)
		if !byAddress && !types.Implements(v.typ, way.iface) {
			continue
		}
		from, ok := r.promotedFrom(p, v, way.method)
		switch {
		case !ok: // it was reported
		case r.tick && isTime(pointee(from.typ)):
			r.text(p, from)
		case types.Implements(from.typ, way.iface):
			r.encode(p, from, way.function, from.text)
		default:
			r.encode(p, from, way.function, "&"+from.text)
		}
		text, _, _ := types.LookupFieldOrMethod(v.typ, true, nil, way.method)
		if ok && !r.tick && isTime(text.(*types.Func).Signature().Recv().Type()) && p.path[len(p.path)-1] != "UTC" {
			r.out.warnings = append(r.out.warnings, problem{r.item.offset(p.at), "the text of a time.Time names its zone, so " + p.text + " makes several keys of one instant", zoneHint(p)})
		}
		return true
	}
	return false
}
