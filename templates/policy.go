package templates

import (
	"strconv"
	"time"

	"github.com/dave/jennifer/jen"
)

// declaration renders the variable that the wrapper passes to the Locker.
func (p Policy) declaration(n Names) jen.Code {
	values := []jen.Code{
		jen.Id("Method").Op(":").Lit(p.Method),
		jen.Id("Pattern").Op(":").Lit(p.Pattern),
	}
	if p.Backend != "" {
		values = append(values, jen.Id("Backend").Op(":").Lit(p.Backend))
	}
	for _, d := range []struct {
		field string
		value Duration
	}{{"TTL", p.TTL}, {"Wait", p.Wait}, {"Max", p.Max}, {"Delay", p.Delay}, {"AtLeast", p.AtLeast}, {"Sticky", p.Sticky}} {
		if d.value.Unit != 0 {
			values = append(values, jen.Id(d.field).Op(":").Add(d.value.expr(n)))
		}
	}
	for _, b := range []struct {
		field string
		set   bool
	}{{"Try", p.Try}, {"Reentrant", p.Reentrant}, {"NoRenew", p.NoRenew}, {"Read", p.Read}, {"Write", p.Write}, {"Fair", p.Fair}, {"Once", p.Once}, {"Leader", p.Leader}, {"Skip", p.Skip}} {
		if b.set {
			values = append(values, jen.Id(b.field).Op(":").True())
		}
	}
	for _, count := range []struct {
		field string
		value int
	}{{"Permits", p.Permits}, {"Weight", p.Weight}, {"Queue", p.Queue}} {
		if count.value > 0 {
			values = append(values, jen.Id(count.field).Op(":").Lit(count.value))
		}
	}
	c := jen.Add(comment(p.Var + " is what the directive " + unbroken(strconv.Quote(p.Pattern)) + " asks for.")).Line()
	c.Var().Id(p.Var).Op("=").Id(n.Lock).Dot("Policy").Custom(
		jen.Options{Open: "{", Close: "}", Separator: ",", Multi: true}, values...)
	return c.Line()
}

var unitNames = map[time.Duration]string{
	time.Nanosecond:  "Nanosecond",
	time.Microsecond: "Microsecond",
	time.Millisecond: "Millisecond",
	time.Second:      "Second",
	time.Minute:      "Minute",
	time.Hour:        "Hour",
}

// expr renders "60 * time.Second".
func (d Duration) expr(n Names) jen.Code {
	unit := jen.Id(n.Time).Dot(unitNames[d.Unit])
	if d.Count == 1 {
		return unit
	}
	return jen.Lit(int(d.Count)).Op("*").Add(unit)
}
