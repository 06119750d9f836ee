package generator

import (
	"go/types"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/templates"
)

// A method with "<ids...>" locks one key for each element of a slice or array.

// dotted returns the placeholder as it is written for a list: "<ids...>".
func (p part) dotted() string { return strings.TrimSuffix(p.text, ">") + "...>" }

// lists checks that at most one placeholder is a list, because nobody wants a lock for each pair
// of elements of two lists.
func (p pattern) lists() []problem {
	var out []problem
	first := ""
	for _, ph := range p.parts {
		switch {
		case !ph.each:
		case first == "":
			first = ph.text
		default:
			out = append(out, problem{ph.at, ph.text + " is a second list, beside " + first,
				"a key takes the elements of one list; a second directive takes those of another"})
		}
	}
	return out
}

// listInTick reports lists in a tick, because a tick is one text.
func (p pattern) listInTick() []problem {
	var out []problem
	for _, ph := range p.parts {
		if ph.each {
			out = append(out, problem{ph.at, ph.text + " is a list, and a tick names one run", "name the run by a parameter that is one value: once=\"<day>\""})
		}
	}
	return out
}

// listInSingle reports a list in the key of a directive with an item that allows only one lock.
func (d *directive) listInSingle(key pattern) []problem {
	name := d.single()
	i := slices.IndexFunc(key.parts, func(p part) bool { return p.each })
	if name == "" || i < 0 {
		return nil
	}
	ph := key.parts[i]
	return []problem{{ph.at, name + " is for one lock, and " + ph.text + " takes one for each element",
		"call a method that has the locks of " + ph.text + " from it"}}
}

// hasList reports whether a key of m is made for each element of a list.
func (m *method) hasList() bool {
	return slices.ContainsFunc(m.directives, func(d *directive) bool {
		return slices.ContainsFunc(d.key.parts, func(p part) bool { return p.each })
	})
}

// elements makes a key for each element of v.
func (r *resolver) elements(p part, v value) {
	if invalid(v.typ) {
		r.report(p, "", "%s: the type of %s can't be determined", p.text, v.path)
		return
	}
	elem := elementOf(v.typ)
	if elem == nil || isByte(elem) {
		r.reportNoList(p, v.typ, elem)
		return
	}
	if r.out.each != nil {
		return // reported when it was parsed
	}
	if ptr, ok := v.typ.Underlying().(*types.Pointer); ok {
		v = r.notNil(p, v)
		v = value{text: "*" + v.text, path: v.path, typ: ptr.Elem(), name: v.name}
	}
	if v.call { // its length is taken, and it is ranged over
		v = r.local(v)
	}
	name := r.elementName(v)
	each := &templates.Each{List: v.text, Element: name, Index: r.locals.pick("i", "index"), Keys: r.locals.pick("keys", "lockKeys")}
	r.out.each = each
	outside := r.out.steps
	r.out.steps = nil
	r.text(p, value{text: name, path: "an element", typ: elem, addressable: true, name: name})
	each.Steps, r.out.steps = r.out.steps, outside
}

// elementName returns a name for an element of the list: usually the singular of the list's name.
func (r *resolver) elementName(v value) string {
	if one, ok := strings.CutSuffix(v.lastName(), "s"); ok && one != "" {
		return r.locals.pick(lowerFirst(one), "element")
	}
	return r.locals.pick("element")
}

func (r *resolver) reportNoList(p part, t, elem types.Type) {
	hint := "an element of a slice or array makes a key each"
	_, isMap := t.Underlying().(*types.Map)
	switch {
	case keyable(t):
		hint = "write <" + strings.Join(p.path, ".") + "> for the key of one value"
	case elem != nil:
		hint = "convert it to a string first"
	case isMap:
		hint = "make a slice of its keys first: slices.Collect(maps.Keys(…))"
	}
	r.report(p, hint, "%s has type %s, which is no list of values", p.text, r.describe(t))
}

// elementOf returns the type of the elements of a slice or array, or of a pointer to one; nil for
// any other type. A type parameter has an element type if all types that it allows are slices with
// the same spelling: ~[]E.
func elementOf(t types.Type) types.Type {
	switch t := t.Underlying().(type) {
	case *types.Slice:
		return t.Elem()
	case *types.Array:
		return t.Elem()
	case *types.Pointer:
		if isTypeParam(t.Elem()) {
			return nil
		}
		if _, again := t.Elem().Underlying().(*types.Pointer); !again {
			return elementOf(t.Elem())
		}
	case *types.Interface:
		if t.NumEmbeddeds() != 1 {
			return nil
		}
		switch e := t.EmbeddedType(0).(type) {
		case *types.Union:
			if e.Len() == 1 {
				return elementOf(e.Term(0).Type())
			}
		default:
			return elementOf(e)
		}
	}
	return nil
}

// isByte distinguishes text in bytes from a list of values.
func isByte(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Kind() == types.Byte
}

// keyable reports whether a value of type t can be a part of a key.
func keyable(t types.Type) bool {
	for {
		if len(basicKinds(t)) > 0 {
			return true
		}
		for _, iface := range []*types.Interface{textMarshaler, stringer} {
			if types.Implements(t, iface) || !types.IsInterface(t) && types.Implements(types.NewPointer(t), iface) {
				return true
			}
		}
		ptr, ok := t.Underlying().(*types.Pointer)
		if !ok {
			return false
		}
		t = ptr.Elem()
	}
}

// noteRequests records the imports of a wrapper that takes the locks of a list and others.
func (f *fileModel) noteRequests(locks []templates.Lock) {
	if !slices.ContainsFunc(locks, func(l templates.Lock) bool { return l.Key.Each != nil }) {
		return
	}
	f.use(RuntimePath)
	if len(locks) > 1 {
		f.use("slices")
	}
}
