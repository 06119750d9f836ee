package templates

import (
	"slices"

	"github.com/dave/jennifer/jen"
)

// Each says that a key function returns one key for each element of a list.
type Each struct {
	List    string // "order.ItemIDs"
	Element string // local that has an element: "itemID"
	Index   string // local that has its index: "i"
	Keys    string // local that has the keys: "keys"
	Steps   []Step // what comes before an element's key, in order
}

// loop renders what makes the keys.
func (k KeyFunc) loop(n Names, p Policy) []jen.Code {
	e := k.Each
	var body []jen.Code
	for _, s := range e.Steps {
		body = append(body, k.step(n, p, s)...)
	}
	body = append(body, jen.Id(e.Keys).Index(jen.Id(e.Index)).Op("=").Add(k.sum(n)))
	return []jen.Code{
		jen.Id(e.Keys).Op(":=").Id("make").Call(jen.Index().String(), jen.Id("len").Call(jen.Id(e.List))),
		jen.For(jen.List(jen.Id(e.Index), jen.Id(e.Element)).Op(":=").Range().Id(e.List)).Block(body...),
	}
}

// lists reports whether a lock of the method is one for each element of a list.
func (m Method) lists() bool {
	return slices.ContainsFunc(m.Locks, func(l Lock) bool { return l.Key.Each != nil })
}

// acquireLists renders the call that takes the locks of lists, and those beside them.
// Slices are joined by their package: a parameter may be called append.
func (m Method) acquireLists(n Names, ctx string) jen.Code {
	all := jen.Id(m.Locker).Dot("AcquireAll")
	if len(m.Locks) == 1 {
		return all.Call(jen.Id(ctx), m.Locks[0].requests(n).Op("..."))
	}
	var lists []jen.Code
	for _, l := range m.Locks {
		lists = append(lists, jen.Line().Add(l.requests(n)))
	}
	return all.Call(jen.Id(ctx), jen.Id(n.Slices).Dot("Concat").Call(append(lists, jen.Line())...).Op("..."))
}

// requests renders the slice of a lock's requests.
func (l Lock) requests(n Names) *jen.Statement {
	policy := jen.Op("&").Id(l.Policy.Var)
	if l.Key.Each != nil {
		return jen.Id(n.Lock).Dot("Requests").Call(policy, jen.Id(l.Key.Var))
	}
	return jen.Index().Id(n.Lock).Dot("Request").Values(
		jen.Values(jen.Id("Policy").Op(":").Add(policy), jen.Id("Key").Op(":").Id(l.Key.Var)))
}
