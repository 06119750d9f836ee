package generator

import (
	"go/types"
	"strings"
)

// through selects embedded fields one by one, because a nil one must be an error of the key and not
// a panic. It leaves out a field that only its own package can name: Go finds the fields in it
// without its name.
func (r *resolver) through(p part, v value, path []*types.Var) (value, bool) {
	if i := r.unnamed(v.typ, path); i >= 0 {
		at := v.path
		for _, field := range path[:i+1] {
			at += "." + field.Name()
		}
		r.report(p, "pass what it names as a parameter", "%s: %s %s, and only package %s can name it", p.text, at, r.goneInto(path[i].Type()), path[i].Pkg().Name())
		return v, false
	}
	for _, field := range path {
		v = r.notNil(p, v)
		if strings.HasPrefix(v.text, "*") {
			v.text = "(" + v.text + ")"
		}
		text := v.text
		if !r.hides(field) {
			text += "." + field.Name()
		}
		v = value{text: text, path: v.path + "." + field.Name(), typ: field.Type(), addressable: v.addressable, call: v.call}
	}
	return r.notNil(p, v), true
}

// unnamed returns the index in path of the first embedded field that the key function must name and
// can't, or -1. The path begins at t.
func (r *resolver) unnamed(t types.Type, path []*types.Var) int {
	for i, field := range path {
		found, _, _ := types.LookupFieldOrMethod(t, true, r.m.unit.types, field.Name())
		if r.goneInto(field.Type()) != "" && (r.hides(field) || found != field) {
			return i
		}
		if !r.hides(field) {
			t = field.Type()
		}
	}
	return -1
}

// hides reports whether only another package can name a field.
func (r *resolver) hides(field *types.Var) bool {
	return !field.Exported() && field.Pkg() != r.m.unit.types
}

// goneInto says why the key function must name an embedded field of that type, if it must.
func (r *resolver) goneInto(t types.Type) string {
	switch {
	case canBeNil(t):
		return "may be nil"
	case r.tick && isTime(t):
		return "is the instant"
	}
	return ""
}

// embeddedFields returns the fields at index: the first is a field of t, and each other one is a
// field of the one before it.
func embeddedFields(t types.Type, index []int) (path []*types.Var) {
	for _, i := range index {
		field := structOf(t).Field(i)
		path, t = append(path, field), field.Type()
	}
	return path
}

// promotedFrom returns the last embedded field that can be nil or is a time, among the fields
// through which v has the method. It returns v if there is none, or if the path to it has a field
// that only another package can name.
func (r *resolver) promotedFrom(p part, v value, method string) (value, bool) {
	_, index, _ := types.LookupFieldOrMethod(v.typ, true, nil, method)
	path := embeddedFields(v.typ, index[:len(index)-1])
	for len(path) > 0 && r.goneInto(path[len(path)-1].Type()) == "" {
		path = path[:len(path)-1]
	}
	isInstant := r.tick && len(path) > 0 && isTime(pointee(path[len(path)-1].Type()))
	if len(path) == 0 || !isInstant && r.unnamed(v.typ, path) >= 0 {
		return v, true
	}
	return r.through(p, v, path)
}
