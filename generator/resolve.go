package generator

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// keyed is the resolved key, or tick, of one directive.
type keyed struct {
	roots []*types.Var // the receiver and parameters that the key names, in signature order
	steps []templates.Step
	each  *templates.Each // the list with one key for each element, or nil
	parts []templates.Part
	fails bool // some value can be invalid at run time

	problems, warnings []problem // in the directive's text
}

// resolver resolves the placeholders of one directive of one method.
type resolver struct {
	m       *method
	d       *directive
	item    *item // the item whose pattern is resolved
	tick    bool  // the pattern is a tick: in it a time.Time stands for its instant
	out     *keyed
	locals  *scope            // names that the key function's identifiers must differ from
	params  map[string]string // the key function's names for the user's parameters
	checked map[string]bool   // expressions that are known to be non-nil
	uses    map[string]int    // how many placeholders start with a path
	called  map[string]value  // the result of such a path, if it is a call
}

// value is the expression for a placeholder, or for its beginning.
type value struct {
	text        string // as in generated code: "order.Customer"
	path        string // as a user would write it, without generated locals
	typ         types.Type
	addressable bool
	call        bool   // it calls a method, which must be called only once
	name        string // the name for locals; empty: the last word of path
}

// resolveKey resolves the placeholders of the key of directive d against the types of m. params has
// the key function's names for the method's variables. Its locals get names that are not in taken.
func (m *method) resolveKey(d *directive, params map[string]string, taken *scope) *keyed {
	r := &resolver{m: m, d: d, item: d.items["key"], params: params, locals: taken}
	return r.resolve(d.key)
}

// resolveTick does the same for the tick.
func (m *method) resolveTick(d *directive, params map[string]string, taken *scope) *keyed {
	r := &resolver{m: m, d: d, item: d.items["once"], tick: true, params: params, locals: taken}
	return r.resolve(d.tick)
}

func (r *resolver) resolve(in pattern) *keyed {
	r.out, r.checked, r.uses, r.called = &keyed{}, map[string]bool{}, map[string]int{}, map[string]value{}
	for _, p := range in.parts {
		for i := range p.path {
			r.uses[strings.Join(p.path[:i+1], ".")]++
		}
	}
	for _, p := range in.parts {
		if !p.isPlaceholder() {
			r.out.parts = append(r.out.parts, templates.Part{Kind: templates.Literal, Text: p.literal})
			continue
		}
		if p.path[0] != "?" { // otherwise it was reported when it was parsed
			r.placeholder(p)
		}
	}
	order := r.m.variables()
	slices.SortFunc(r.out.roots, func(a, b *types.Var) int {
		return slices.Index(order, a) - slices.Index(order, b)
	})
	return r.out
}

// bodyWords are the predeclared names that key functions use. A parameter of a key function with
// such a name is renamed; a parameter of the method is not.
var bodyWords = map[string]bool{"nil": true, "string": true, "int64": true, "uint64": true, "bool": true}

// keyParams returns the names of the receiver and the parameters in key functions.
func (m *method) keyParams(taken *scope) map[string]string {
	out := map[string]string{}
	for _, v := range m.variables() {
		out[v.Name()] = v.Name()
		if bodyWords[v.Name()] || m.hasList() && (v.Name() == "make" || v.Name() == "len") {
			out[v.Name()] = taken.pick(v.Name() + "Arg")
		}
	}
	return out
}

func (r *resolver) report(p part, hint, format string, args ...any) {
	r.out.problems = append(r.out.problems, problem{r.item.offset(p.at), fmt.Sprintf(format, args...), hint})
}

func (r *resolver) placeholder(p part) {
	v, ok := r.root(p)
	for _, name := range p.path[1:] {
		if !ok {
			return
		}
		v, ok = r.selector(p, v, name)
	}
	switch {
	case p.each && r.tick: // reported when it was parsed
	case ok && p.each:
		r.elements(p, v)
	case ok:
		r.text(p, v)
	}
}

// root finds the parameter or receiver with which a placeholder starts. Go does not allow two of
// them with one name.
func (r *resolver) root(p part) (value, bool) {
	name := p.path[0]
	for _, v := range r.m.variables() {
		if v.Name() != name {
			continue
		}
		if !slices.Contains(r.out.roots, v) {
			r.out.roots = append(r.out.roots, v)
		}
		return value{text: r.params[name], path: name, typ: v.Type(), addressable: true}, true
	}
	r.report(p, r.have(p), "unknown placeholder %s", p.text)
	return value{}, false
}

// have returns the names that a placeholder could have used.
func (r *resolver) have(p part) string {
	sig := r.m.fn.Signature()
	var have []string
	for v := range sig.Params().Variables() {
		if v.Name() != "" && v.Name() != "_" && !isContext(v.Type()) {
			have = append(have, v.Name())
		}
	}
	receiver, usable := "", false
	if recv := r.m.receiver(); recv != nil {
		receiver = recv.Name()
		usable = receiver != "" && receiver != "_"
	}
	if len(p.path) > 1 && usable {
		have = append(have, receiver)
	}
	if near := nearest(p.path[0], have); near != "" {
		return "did you mean " + near + "? have " + strings.Join(have, ", ")
	}
	if len(have) > 0 {
		return "have " + strings.Join(have, ", ")
	}
	if usable {
		return "the method has no named parameter; have the receiver's fields: <" + receiver + ".…>"
	}
	return "the " + r.m.what() + " has no named parameter: name it"
}

// selector goes one step along a placeholder: to a field, or to the result of a method without
// arguments.
func (r *resolver) selector(p part, v value, name string) (value, bool) {
	pkg := r.m.unit.types
	obj, index, _ := types.LookupFieldOrMethod(v.typ, v.addressable, pkg, name)
	if obj == nil {
		r.reportNoSelector(p, v, name)
		return v, false
	}
	base := r.notNil(p, v)
	v, ok := r.through(p, base, embeddedFields(v.typ, index[:len(index)-1]))
	if !ok {
		return v, false
	}
	text, path := v.text+"."+name, base.path+"."+name
	if strings.HasPrefix(v.text, base.text+".") { // Go finds embedded fields by itself
		text = base.text + "." + name
	}
	switch obj := obj.(type) {
	case *types.Var:
		return value{text: text, path: path, typ: obj.Type(), addressable: v.addressable, call: v.call}, true
	case *types.Func:
		sig := obj.Signature()
		if sig.Params().Len() > 0 || sig.Results().Len() != 1 {
			r.report(p, "a placeholder calls methods without arguments that return one value", "%s: %s is %s", p.text, path, r.describe(sig))
			return v, false
		}
		return r.once(value{text: text + "()", path: path, typ: sig.Results().At(0).Type(), call: true}), true
	}
	return v, false
}

// once gives the result of a call a name if another placeholder needs it too, because two calls may
// return different values.
func (r *resolver) once(v value) value {
	if r.uses[v.path] < 2 {
		return v
	}
	known, ok := r.called[v.path]
	if !ok {
		known = r.local(v)
		r.called[v.path] = known
	}
	return known
}

func (r *resolver) describe(t types.Type) string {
	return types.TypeString(t, types.RelativeTo(r.m.unit.types))
}

func (r *resolver) reportNoSelector(p part, v value, name string) {
	if invalid(v.typ) {
		r.report(p, "", "%s: the type of %s can't be determined", p.text, v.path)
		return
	}
	if obj, _, _ := types.LookupFieldOrMethod(v.typ, true, r.m.unit.types, name); obj != nil {
		r.report(p, "", "%s: %s has a pointer receiver, and %s has no address", p.text, name, v.path)
		return
	}
	var have []string
	if s := structOf(v.typ); s != nil {
		for f := range s.Fields() {
			if f.Exported() || f.Pkg() == r.m.unit.types {
				have = append(have, f.Name())
			}
		}
	}
	hint := ""
	if near := nearest(name, have); near != "" {
		hint = "did you mean " + near + "?"
	} else if 0 < len(have) && len(have) <= 10 {
		hint = "have " + strings.Join(have, ", ")
	}
	r.report(p, hint, "%s: %s has no field or method %s", p.text, v.path, name)
}

// structOf returns the struct that t is or points to.
func structOf(t types.Type) *types.Struct {
	s, _ := pointee(t).Underlying().(*types.Struct)
	return s
}

// notNil adds one nil check for a pointer or an interface.
func (r *resolver) notNil(p part, v value) value {
	if !canBeNil(v.typ) {
		return v
	}
	if v.call {
		v = r.local(v)
	}
	if !r.checked[v.text] {
		r.checked[v.text] = true
		path := v.path
		if "<"+path+">" == p.text {
			path = ""
		}
		r.out.steps = append(r.out.steps, templates.Step{NotNil: &templates.NotNil{Expr: v.text, Placeholder: p.text, Path: path}})
	}
	r.out.fails = true
	v.addressable = isPointer(v.typ)
	return v
}

// canBeNil reports whether a value of type t may be nil when a field or method of it is selected.
func canBeNil(t types.Type) bool { return isPointer(t) || types.IsInterface(t) && !isTypeParam(t) }

// local gives the result of a call a name, so that the value that is checked is the value that is
// used.
func (r *resolver) local(v value) value {
	name := lowerFirst(v.lastName())
	name = r.locals.pick(name, name+"Value")
	r.out.steps = append(r.out.steps, templates.Step{Let: &templates.Let{Name: name, Expr: v.text}})
	v.text, v.call = name, false
	return v
}

// lastName returns the name from which the names of v's locals are made.
func (v value) lastName() string {
	return cmp.Or(v.name, v.path[strings.LastIndex(v.path, ".")+1:])
}

func isTypeParam(t types.Type) bool {
	_, ok := types.Unalias(t).(*types.TypeParam)
	return ok
}

// text makes the value a part of the key, by the rule in the package comment.
func (r *resolver) text(p part, v value) {
	whole := v.typ
	for {
		if unknown(v.typ) { // go/types says that such a type implements anything
			r.report(p, "", "%s: the type of %s can't be determined", p.text, v.path)
			return
		}
		if r.tick && isTime(v.typ) {
			r.encode(p, v, "TickTime", v.text)
			return
		}
		switch kinds := basicKinds(v.typ); {
		case len(kinds) == 1:
			r.basic(p, v, kinds[0])
			return
		case len(kinds) > 1:
			r.mixed(p, v, kinds)
			return
		}
		ptr, isPointer := v.typ.Underlying().(*types.Pointer)
		if isPointer {
			ok := len(basicKinds(ptr.Elem())) > 0 || r.tick && isTime(ptr.Elem())
			if !ok && r.method(p, v) {
				return
			}
			v = r.notNil(p, v)
			v = value{text: "*" + v.text, path: v.path, typ: ptr.Elem(), addressable: true, name: v.name}
			continue
		}
		if !r.method(p, v) {
			r.reportType(p, whole)
		}
		return
	}
}

func (r *resolver) reportType(p part, t types.Type) {
	hint := "a key takes integers, strings, bools, fmt.Stringer, encoding.TextMarshaler, and pointers to these"
	if r.tick {
		hint = "a tick takes time.Time, integers, strings, bools, fmt.Stringer, encoding.TextMarshaler, and pointers to these"
	}
	elem := elementOf(t)
	switch {
	case p.each:
		r.report(p, hint, "an element of %s has type %s", p.text, r.describe(t))
		return
	case elem != nil && isByte(elem):
		hint = "convert it to a string first"
	case elem != nil && keyable(elem) && !r.tick && r.d.single() == "":
		hint = "did you mean " + p.dotted() + "? It takes one lock for each element"
	}
	r.report(p, hint, "%s has type %s", p.text, r.describe(t))
}

func (r *resolver) encode(p part, v value, function, expr string) {
	suffix := "Key"
	if r.tick {
		suffix = "Tick"
	}
	name := r.locals.pick(lowerFirst(v.lastName()) + suffix)
	r.out.fails = true
	r.out.steps = append(r.out.steps, templates.Step{Encode: &templates.Encode{Name: name, Func: function, Placeholder: p.text, Expr: expr}})
	r.out.parts = append(r.out.parts, templates.Part{Kind: templates.Encoded, Text: name})
}
