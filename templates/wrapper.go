package templates

import "github.com/dave/jennifer/jen"

// declaration renders the alias, the wrapper type and its constructor.
func (w *Wrapper) declaration(n Names) jen.Code {
	args := names(w.TypeParams)
	self := instance(w.Name, args)
	pointer, lead := jen.Null(), w.Name+" implements ["+w.Target+"] over any other: annotated methods run under their locks."
	if w.Pointer {
		pointer, lead = jen.Op("*"), w.Name+" is a ["+w.Target+"] whose annotated methods run under their locks."
	}
	c := jen.Add(comment(w.Alias + " is " + w.Target + " under a name that no other package can use to reach past the locks.")).Line()
	c.Type().Add(generic(w.Alias, w.TypeParams)).Op("=").Add(instance(w.Target, args)).Line().Line()

	c.Add(comment(lead + " Its other methods pass through.")).Line()
	members := []jen.Code{pointer.Clone().Add(instance(w.Alias, args)), jen.Id(w.Locker).Op("*").Id(n.Lock).Dot("Locker")}
	values := []jen.Code{jen.Id(w.Alias).Op(":").Id(w.Inner), jen.Id(w.Locker).Op(":").Id(w.LockerParam)}
	for _, m := range w.Mergers {
		types := jen.Types(jen.Id(m.Request), jen.Id(m.Result))
		members = append(members, jen.Id(m.Field).Op("*").Id(n.Lock).Dot("Merger").Add(types))
		values = append(values, jen.Id(m.Field).Op(":").Id(n.Lock).Dot("NewMerger").Add(types.Clone()).Call(
			jen.Id(w.LockerParam), jen.Op("&").Id(m.Policy), jen.Lit(m.Most)))
	}
	c.Type().Add(generic(w.Name, w.TypeParams)).Struct(members...).Line().Line()

	c.Add(comment(w.Constructor + " guards " + w.Inner + " with the locks of " + w.LockerParam + ".")).Line()
	c.Func().Add(generic(w.Constructor, w.TypeParams)).Params(
		jen.Id(w.Inner).Add(pointer.Clone()).Add(instance(w.Target, args)),
		jen.Id(w.LockerParam).Op("*").Id(n.Lock).Dot("Locker"),
	).Op("*").Add(self.Clone()).Block(
		w.check(),
		jen.Return(jen.Op("&").Add(self).Custom(
			jen.Options{Open: "{", Close: "}", Separator: ",", Multi: len(w.Mergers) > 0}, values...)),
	)
	return c.Line()
}

// check renders the call by which the constructor panics if the Locker can't do what a
// directive asks for, or nothing if every Locker can.
func (w *Wrapper) check() jen.Code {
	var policies []jen.Code
	for _, m := range w.Methods {
		for _, l := range m.Locks {
			if l.Policy.special() {
				policies = append(policies, jen.Op("&").Id(l.Policy.Var))
			}
		}
	}
	if policies == nil {
		return jen.Null()
	}
	return jen.Id(w.LockerParam).Dot("MustSupport").Call(policies...)
}
